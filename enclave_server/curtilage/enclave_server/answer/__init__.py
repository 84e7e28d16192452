"""The run of one answer: from an opened question to sealed frames at a steady pace.

Keeps nothing when the answer ends. Four choices, each made once and free of the others:

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
a model, or none           ``run._ModelRun`` fills what   ``padded.PaddedChallenge``,
(what was asked)           the frames hold                ``write_cover``,
                                                          ``write_error``
=========================  =============================  ===========================

The outputs and sealers are ``ohttp.sealing``'s; ``ohttp.gateway`` chooses one with the
key that opened the request.
"""
