"""Declarations of ``curtilage deploy``."""

from typing import Final

from curtilage.cli.declared import Choice, Run, command, group

# Copied from ``curtilage.cli.deploy.layouts`` and from the profiles; a test compares.
LAYOUTS: Final = ("one-operator", "processes", "enclave", "relay", "gateway")
PROFILES: Final = ("default", "clinic", "bank", "law-firm", "public-office")


@group("deploy", offline=True)
def deploy() -> None:
    """Write the files of a deployment.

    Keys that exist are never replaced, and nothing is fetched or started.

    Example:
        curtilage deploy init one-operator
        curtilage deploy refresh deploy/run
    """


@command(
    "init",
    deploy,
    types={"LAYOUT": Choice(LAYOUTS), "PROFILE": Choice(PROFILES)},
)
def deploy_init() -> Run:
    r"""Write all files of one party's deployment.

    Writes configurations, compose files, keys for TLS with requests for certificates,
    and, for an enclave, a log with its release; then shows the release's measurement
    and what to do next. Run it again at any time: it keeps keys, and what you edited.

      one-operator: enclave and relay side by side, for trying, by compose.yaml
      processes:    the same as processes of this machine (docs/by-hand.md)
      enclave:      for the enclave's operator; and what clients' policies need
      relay:        for the relay's operator
      gateway:      for a department, whose applications share one client

    Options:
        LAYOUT: what to write for
        --out DIR: where (default: deploy/run, which compose.yaml mounts; of other
            layouts curtilage-LAYOUT)
        --replace: write again what you may have edited; never a key
        --dry-run: only show what would be written

    Options (the policy of a client):
        --policy PROFILE: merge the section `attestation:` into this shipped profile,
            so that something may leave; of an enclave it is written each time. With
            emulated evidence, once the emulator has written root.pem
        --no-routing: without the profile's section `routing:`; all that may be sent is
            sent
        --attestation FILE: gateway: that section, from the enclave's operator

    Options (an enclave):
        --measurements FILE...: JSON as the image's build prints it; repeatable
        --min-tcb LEVELS...: lowest AMD patch levels: Genoa:bl=10,tee=0,snp=27,ucode=86;
            repeatable
        --emulated: an emulated machine, for trying: it proves nothing
        --sandbox FILE: name this sandbox in the release, so that clients can demand
            `no_write`: what `curtilage-enclave sandbox` prints on the enclave's machine
        --model FILE: a GGUF file; default: the embedded model

    Options (addresses):
        --name HOST: this party's name, for its certificate
        --gateway NAME=URL...: relay: the enclave behind a name; repeatable
        --relay URL: gateway: https://host/name of the relay
        --application NAME...: gateway: make a key for this application; repeatable

    Example:
        curtilage deploy init one-operator
        curtilage deploy init enclave --name enclave.example.net \
          --measurements measured.json --min-tcb Genoa:bl=10,tee=0,snp=27,ucode=86
        curtilage deploy init relay --name relay.example.org \
          --gateway ward=https://enclave.example.net:8443
        curtilage deploy init gateway --name curtilage.ward.example \
          --relay https://relay.example.org:8443/ward --application letters \
          --policy clinic --attestation attestation.yaml
    """
    from curtilage.cli.deploy.init import run_init

    return run_init


@command("refresh", deploy)
def deploy_refresh() -> Run:
    """Cosign a deployment's log at the present time.

    A client accepts a checkpoint for a day. The log's own witness cosigns it again, and
    the enclave's copy is replaced; a running enclave picks it up.

    Options:
        FOLDER: that `deploy init` wrote to

    Example:
        curtilage deploy refresh deploy/run
    """
    from curtilage.cli.deploy.init import run_refresh

    return run_refresh
