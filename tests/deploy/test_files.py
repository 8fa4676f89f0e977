"""Files of a deployment: the unit, the container file, the manifests; each as safe as promised."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from marey.app.access.access_control import check_access
from marey.app.assembly import check_transport
from marey.app.settings.configuration import ServerSettings, load_configuration
from marey.cli import COMMANDS
from marey.cli.site import serve

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "marey.service"
CONTAINER = DEPLOY / "Containerfile"


def manifests() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [document for document in manifests() if document["kind"] == kind]
    return found


@pytest.mark.real
def test_systemd_accepts_the_unit(need_program: Callable[..., str], tmp_path: Path) -> None:
    program = need_program("systemd-analyze")
    unit = tmp_path / "marey.service"
    # The one thing that is not here is what it starts.
    unit.write_text(UNIT.read_text().replace("/opt/marey/bin/marey", sys.executable))
    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert "marey.service" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_unit_is_hardened_and_reloads() -> None:
    text = UNIT.read_text()
    lines = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"^[A-Z]\w+=", line))
    assert lines["User"] == "marey"
    for key in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome"):
        assert lines[key] == "yes"
    assert lines["ProtectSystem"] == "strict"
    assert lines["CapabilityBoundingSet"] == ""
    assert "-HUP $MAINPID" in lines["ExecReload"]


def test_everything_that_the_container_copies_is_there() -> None:
    stages: set[str] = set()
    for line in CONTAINER.read_text().splitlines():
        if line.startswith("FROM"):
            image = line.split()[1]
            assert "/" not in image, "an image is named without a registry"
            stages |= {line.split()[-1]} if " AS " in line else set()
        if not line.startswith("COPY"):
            continue
        words = line.split()[1:]
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages
            continue
        for source in words[:-1]:
            assert (ROOT / source).exists(), source


def test_the_container_runs_as_nobody_special_and_has_what_a_build_requires() -> None:
    text = CONTAINER.read_text()
    last = text[text.rindex("FROM") :]
    assert "USER 10001:10001" in last
    assert last.index("USER") > last.index("RUN pip install")
    listed = (ROOT / "requirements" / "build.txt").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for requirement in project["build-system"]["requires"]:
        assert requirement in listed


def test_the_role_may_only_look_and_at_no_more_than_is_watched() -> None:
    rules = of_kind("ClusterRole")["rules"]
    granted = {(g, r) for rule in rules for g in rule["apiGroups"] for r in rule["resources"]}
    assert granted == {("", "nodes"), ("", "pods"), ("batch", "jobs")}
    for rule in rules:
        assert set(rule["verbs"]) <= {"get", "list", "watch"}
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_the_binding_gives_the_role_to_the_pods_account_only() -> None:
    binding, account = of_kind("ClusterRoleBinding"), of_kind("ServiceAccount")
    assert binding["roleRef"]["name"] == of_kind("ClusterRole")["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "marey"}
    ]
    spec = of_kind("Deployment")["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == account["metadata"]["name"]


def test_the_pod_is_restricted_and_keeps_its_store_on_a_claim() -> None:
    deployment = of_kind("Deployment")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    spec = deployment["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    inside = container["securityContext"]
    assert inside["readOnlyRootFilesystem"] is True
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    claim = volumes[mounts["/var/lib/marey"]]["persistentVolumeClaim"]["claimName"]
    assert claim == of_kind("PersistentVolumeClaim")["metadata"]["name"]
    assert set(mounts.values()) == set(volumes)


def test_the_configuration_in_the_manifest_is_one_that_the_server_reads(tmp_path: Path) -> None:
    path = tmp_path / "marey.toml"
    (tmp_path / "token").write_text("0123456789abcdef")
    text = of_kind("ConfigMap")["data"]["marey.toml"]
    path.write_text(text.replace("/etc/marey-token/token", str(tmp_path / "token")))
    configuration = load_configuration(path)
    assert check_access(configuration) == "token", "a server beyond loopback asks for tokens"
    check_transport(configuration.server)
    assert configuration.store.path.startswith("/var/lib/marey/")
    assert len(configuration.sources) == 2


def test_every_file_is_documented() -> None:
    text = (ROOT / "docs" / "deployment.md").read_text()
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert str(path.relative_to(ROOT)) in text, path.name


def test_ports_paths_and_commands_are_those_of_the_program() -> None:
    port = ServerSettings().port
    text = CONTAINER.read_text()
    assert re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE) == [str(port)]
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    assert [entry["containerPort"] for entry in container["ports"]] == [port]
    assert [entry["port"] for entry in of_kind("Service")["spec"]["ports"]] == [port]
    started = json.loads(re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)[0])
    assert started == container["args"]
    unit = re.findall(r"^ExecStart=/opt/marey/bin/marey (.*)$", UNIT.read_text(), re.MULTILINE)
    assert unit == [" ".join(started)]
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    assert str(parser.parse_args(started[1:]).config) == "/etc/marey/marey.toml"
    assert (started[0], COMMANDS["serve"][0]) == ("serve", serve.__name__)
    assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_container_is_of_a_python_that_the_package_allows_and_starts_its_script() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = CONTAINER.read_text()
    allowed = _version(project["requires-python"].removeprefix(">="))
    images = set(re.findall(r"^FROM python:([\d.]+)", text, re.MULTILINE))
    assert len(images) == 1, "built and run by the same Python"
    assert _version(images.pop()) >= allowed
    assert json.loads(re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)[0]) == ["marey"]
    assert "marey" in project["scripts"]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@pytest.mark.parametrize("name", ["runtime", "native", "build", "dev"])
def test_every_locked_package_has_hashes(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text().replace("\\\n", " ")
    pins = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert len(pins) >= 5
    for pin in pins:
        assert re.match(r"^[A-Za-z0-9._-]+(\[[\w,]+\])?==\S+", pin), pin
        assert "--hash=sha256:" in pin, pin


def test_the_container_installs_nothing_without_a_hash() -> None:
    text = CONTAINER.read_text().replace("\\\n", " ")
    for step in re.findall(r"pip install[^&\n]*", text):
        # What was just built from this tree has no hash, and brings nothing along.
        assert "--require-hashes" in step or "--no-deps /dist/" in step, step
