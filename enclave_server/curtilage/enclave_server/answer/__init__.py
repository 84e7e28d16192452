"""Runs one answer: from an opened request to sealed frames at a constant pace.

Stores nothing when the answer ends. Four independent choices, each made once:

=========================  =============================  ===========================
choice                     one way                        the other way
=========================  =============================  ===========================
padded, or not             ``run.AnswerRun._frames``:     ``run.AnswerRun._unpadded``:
(the release says)         ``PaddedSealer`` at the ticks  a ``Sealer`` when the model
                           of a ``pacing.Pacer``          speaks
chunked, or plain          ``ChunkedOutput`` (padded),    ``PlainOutput`` (padded),
(the outer Content-Type)   ``ChunkedSealer``; each is     ``PlainSealer``; each is
                           sent at once                   sent whole, at the end
streamed, or whole         ``padded.PaddedStream``,       ``padded.PaddedWhole``,
(``stream`` of a chat      ``run._EventEncoder``          ``run._WholeEncoder``
request)
a model, or none           ``run._ModelRun`` fills the    ``padded.PaddedChallenge``,
(the kind of request)      frames                         ``write_cover``,
                                                          ``write_error``
=========================  =============================  ===========================

The outputs and sealers are ``ohttp.sealing``'s; ``ohttp.gateway`` chooses one with the
key that opened the request.
"""
