"""The manifests of deploy/kubernetes: read here, and checked against the schema."""

import os
from collections.abc import Iterator
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from deploy.containers.build import tag_of
from deploy.image.rootfs import PYTHON

from curtilage.enclave_server.acquire.command import PROVIDERS
from curtilage.relay.balancer.command import RUNTIME_FOLDER
from curtilage.relay.balancer.config import parse_balancer
from curtilage.relay.balancer.text import balancer_text
from curtilage.relay.config import HTTPUpstream
from curtilage.relay.config import parse_config as parse_relay

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
FILES = ("balancer.yaml", "enclave.yaml", "enclaves.yaml", "relay.yaml")
NAME = "app.kubernetes.io/name"
Tree = dict[str, Any]


def documents(file: str) -> list[Tree]:
    text = (FOLDER / file).read_text("utf-8")
    return [cast("Tree", each) for each in yaml.safe_load_all(text)]


def one(file: str, kind: str) -> Tree:
    (found,) = [each for each in documents(file) if each["kind"] == kind]
    return found


def pods() -> Iterator[tuple[str, Tree]]:
    """Yield each file with the description of its pods: labels and specification."""
    for file in FILES:
        for each in documents(file):
            if each["kind"] == "Pod":
                yield file, each
            elif "template" in each.get("spec", {}):
                yield file, each["spec"]["template"]


CONTAINERS = [
    (file, str(each["name"]))
    for file, pod in pods()
    for each in pod["spec"]["containers"]
]


def container(file: str, name: str) -> tuple[Tree, Tree]:
    """Return a pod's specification, and one of its containers."""
    (spec,) = [pod["spec"] for found, pod in pods() if found == file]
    (each,) = [each for each in spec["containers"] if each["name"] == name]
    return spec, each


def mounts(file: str, name: str) -> dict[str, Tree]:
    _, found = container(file, name)
    return {each["name"]: each for each in found["volumeMounts"]}


def test_there_are_no_other_manifests() -> None:
    assert tuple(sorted(path.name for path in FOLDER.glob("*.yaml"))) == FILES


@pytest.mark.parametrize(("file", "name"), CONTAINERS)
def test_every_container_is_confined(file: str, name: str) -> None:
    spec, found = container(file, name)
    pod, own = spec["securityContext"], found["securityContext"]
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["allowPrivilegeEscalation"] is False
    assert own["readOnlyRootFilesystem"] is True
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in own
    assert found["resources"]["limits"]["memory"]
    assert spec["automountServiceAccountToken"] is False
    for risky in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        assert risky not in spec
    user = {**pod, **own}
    if name == "evidence":  # configfs gives new entries to root
        assert (user["runAsUser"], user["runAsGroup"]) == (0, 65532)
    else:
        assert user["runAsNonRoot"] is True
        assert user["runAsUser"] == 65532


def test_only_the_device_of_the_machine_comes_from_outside() -> None:
    for file, pod in pods():
        paths = [
            each["hostPath"]["path"]
            for each in pod["spec"]["volumes"]
            if "hostPath" in each
        ]
        confidential = file in {"enclave.yaml", "enclaves.yaml"}
        assert paths == (["/sys/kernel/config"] if confidential else [])


def test_an_enclave_is_a_confidential_pod_with_a_policy_of_its_own() -> None:
    pod = one("enclave.yaml", "Pod")
    assert pod["spec"]["runtimeClassName"] == "kata-qemu-snp"
    assert (
        "io.katacontainers.config.hypervisor.cc_init_data"
        in (pod["metadata"]["annotations"])
    )


def test_several_enclaves_are_the_one() -> None:
    template = one("enclaves.yaml", "StatefulSet")["spec"]["template"]
    pod = one("enclave.yaml", "Pod")
    assert template["spec"] == pod["spec"]
    assert template["metadata"]["annotations"] == pod["metadata"]["annotations"]


def test_only_the_server_reaches_the_socket_that_signs_keys() -> None:
    for file in ("enclave.yaml", "enclaves.yaml"):
        assert mounts(file, "enclave")["evidence"]["readOnly"] is True
        assert "evidence" not in mounts(file, "stapler")
        assert "identify" not in mounts(file, "enclave")
        assert mounts(file, "evidence")["endorsements"]["readOnly"] is True
        _, evidence = container(file, "evidence")
        options = dict(each.split("=") for each in evidence["args"][1:])
        assert options["--provider"] in PROVIDERS
        assert options["--listen"] == "unix:/run/evidence/evidence.sock"
        _, stapler = container(file, "stapler")
        assert stapler["command"][0] == PYTHON
        assert f"--identity={options['--identify']}" in stapler["args"]
        assert f"--endorsements={options['--endorsements']}" in stapler["args"]


def test_sockets_and_endorsements_are_in_memory() -> None:
    volumes = {
        each["name"]: each for each in one("enclave.yaml", "Pod")["spec"]["volumes"]
    }
    for name in ("evidence", "identify", "endorsements"):
        assert volumes[name]["emptyDir"]["medium"] == "Memory"
        assert "sizeLimit" in volumes[name]["emptyDir"]


def test_images_are_ours_but_envoy() -> None:
    for file, name in CONTAINERS:
        _, found = container(file, name)
        if name == "envoy":
            assert found["image"].startswith("envoyproxy/envoy:v1.")
            assert found["command"][0] == "envoy"
            continue
        role = "relay" if name == "relay" else "enclave"
        assert found["image"] == tag_of(role)


def test_every_mount_has_a_volume() -> None:
    for file, pod in pods():
        volumes = {each["name"] for each in pod["spec"]["volumes"]}
        used = {
            mount["name"]
            for each in pod["spec"]["containers"]
            for mount in each["volumeMounts"]
        }
        assert used == volumes, file


def test_services_and_policies_select_the_pods() -> None:
    for file, pod in pods():
        named = pod["metadata"]["labels"]
        for each in documents(file):
            if each["kind"] == "Service":
                assert each["spec"]["selector"] == named
                (port,) = each["spec"]["ports"]
                assert port["targetPort"] == "https"
            if each["kind"] == "NetworkPolicy":
                assert each["spec"]["podSelector"]["matchLabels"] == named
                assert each["spec"]["policyTypes"] == ["Ingress", "Egress"]
                assert all(rule["ports"] for rule in each["spec"]["egress"])


def test_the_relays_configuration_is_valid_for_production() -> None:
    text = one("relay.yaml", "ConfigMap")["data"]["relay.toml"]
    config = parse_relay(text, {})
    assert config.tls is not None
    folder = mounts("relay.yaml", "relay")["tls"]["mountPath"]
    assert config.tls.key == Path(folder) / "tls.key"
    assert all(isinstance(each, HTTPUpstream) for each in config.gateways.values())
    assert b"localhost" in config.hosts  # which the health check names
    spec, _ = container("relay.yaml", "relay")
    limits = config.limits
    ends = limits.drain_delay_s + limits.shutdown_grace_s
    assert spec["terminationGracePeriodSeconds"] > ends


def test_envoy_knows_each_enclave_by_its_name() -> None:
    text = (FOLDER / "balancer.toml").read_text("utf-8")
    config = parse_balancer(text)
    assert not config.chooses
    stateful = one("enclaves.yaml", "StatefulSet")
    name, spec = stateful["metadata"]["name"], stateful["spec"]
    assert one("enclaves.yaml", "Service")["metadata"]["name"] == spec["serviceName"]
    wanted = [
        HTTPUpstream(origin=f"https://{name}-{number}.{spec['serviceName']}:8443")
        for number in range(spec["replicas"])
    ]
    assert [upstream for (upstream,) in config.names.values()] == wanted
    mounted = mounts("balancer.yaml", "envoy")
    assert mounted["runtime"]["mountPath"] == str(RUNTIME_FOLDER)
    envoy = balancer_text("envoy", config, RUNTIME_FOLDER)
    files = {
        Path(line.partition('filename: "')[2].partition('"')[0])
        for line in envoy.splitlines()
        if 'filename: "' in line
    }
    folders = {Path(each["mountPath"]) for each in mounted.values()}
    assert files
    assert {path.parent for path in files} <= folders
    _, found = container("balancer.yaml", "envoy")
    settings = Path(mounted["settings"]["mountPath"]) / "envoy.yaml"
    assert str(settings) in found["command"]
    assert found["command"][found["command"].index("-l") + 1] == "off"
    grace = container("balancer.yaml", "envoy")[0]["terminationGracePeriodSeconds"]
    assert grace > found["lifecycle"]["preStop"]["sleep"]["seconds"]


# Against the schema of Kubernetes.


def validate(document: Tree) -> None:
    """Check one document strictly.

    Raises:
        ValueError: it is not valid.
    """
    try:
        checker: Any = import_module("kubernetes_validate")
    except ModuleNotFoundError:
        words = "SKIPPED LOUDLY: kubernetes-validate is not installed"
        if "kubernetes" in os.environ.get("CURTILAGE_REQUIRE", "").split(","):
            pytest.fail(words)
        pytest.skip(words)
    try:
        checker.validate(document, checker.latest_version(), strict=True)
    except checker.ValidationError as error:
        raise ValueError(str(error)) from None


@pytest.mark.parametrize("file", FILES)
def test_kubernetes_knows_every_key(file: str) -> None:
    for each in documents(file):
        validate(each)


def test_a_key_that_kubernetes_would_ignore_is_seen() -> None:
    pod = deepcopy(one("enclave.yaml", "Pod"))
    validate(pod)
    own = pod["spec"]["containers"][0]["securityContext"]
    own["readOnlyRootFileSystem"] = own.pop("readOnlyRootFilesystem")
    with pytest.raises(ValueError, match="readOnlyRootFileSystem"):
        validate(pod)
