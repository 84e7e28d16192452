"""Who else has, or had, a say in a trust domain, by its TD report.

A domain of ours has no service domain bound to it, was never migrated, is not
divided into virtual machines and has no device inside. What shows any of that is
refused, also where it might be harmless: none of it is measured, and nothing here
could tell. A TD report 1.0 says nothing of it, and a 1.5 only of service domains.
"""

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.tdx.quote import TdExtension, TdReport


def check_td_relations(report: TdReport) -> None:
    """Refuse a domain in which anybody else has, or had, a say.

    Raises:
        RefusedError: ``migration_agent_allowed`` where a service domain is or was
            bound, or where anything at all stands in the fields that tell of the
            platform on which the domain was made. They are filled in with the
            attribute SERVTD_EXT alone, which is refused as well, but then also
            where the domain was never migrated: the two are not told apart.
            ``measurement_not_allowed`` where a virtual machine inside the domain
            asked, or the domain has devices.
    """
    # A service domain, such as one for migration, may read and write the domain's
    # state. Its hash is in no measurement that a release names.
    if report.mrservicetd is not None and any(report.mrservicetd):
        raise _agent("a service domain is bound to it")
    if report.extension is not None:
        _check_extension(report.extension)


def _check_extension(extension: TdExtension) -> None:
    if any(extension.current_servicetd + extension.current_servicetd_attributes):
        raise _agent("a service domain is bound to it")
    if any(extension.init_servicetd + extension.init_servicetd_attributes):
        raise _agent("a service domain was bound to it")
    # Made elsewhere and moved here: what was measured, was measured by a platform of
    # which this evidence says nothing.
    if any(extension.init_cpusvn + extension.init_tee_tcb_svn + extension.init_model):
        raise _agent("it may have been made on another platform")
    # TD partitioning: several virtual machines in one domain share its measurements,
    # and any of them may ask for a quote with report data of its own.
    if extension.vmid:
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED,
            f"virtual machine {extension.vmid} inside the trust domain asked",
        )
    # A device inside reads the domain's memory by right, and nobody here has judged it.
    if any(extension.device_info):
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED, "the trust domain has devices"
        )


def _agent(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.MIGRATION_AGENT_ALLOWED, detail)
