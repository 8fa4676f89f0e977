"""A real Kubernetes control plane on loopback, without any node: a small thread is the kubelet.

The programs are built by ``scripts/build-kubernetes``. Everything lives in one temporary folder and
ends with the ``with`` block.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.waiting import free_port, until

Document = dict[str, Any]
ADMIN = "soak-administrator"
# Where deploy/kubernetes/rbac.yaml puts the account.
ACCOUNT_NAMESPACE = "marey"
# A kubelet renews its node's status this often, well within the controller's patience.
HEARTBEAT_S = 5.0
# What the small kubelet does with a pod, by the pod's annotation.
BEHAVIOUR = "soak/behaviour"


def now() -> str:
    """Return this moment as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ControlPlane:
    """etcd, API server, controllers and scheduler, each a process that can be killed."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.etcd_port, self.port = free_port(), free_port()
        self.server = f"https://127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tls = ssl._create_unverified_context()
        self._write_files()

    def _write_files(self) -> None:
        (self.folder / "tokens.csv").write_text(f"{ADMIN},admin,admin-uid,system:masters\n")
        key = self.folder / "accounts.key"
        subprocess.run(
            ["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
        )
        cluster = {"server": self.server, "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "soak", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
            "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "admin"}}],
            "current-context": "soak",
        }
        (self.folder / "kubeconfig").write_text(json.dumps(config))

    def _start(self, program: str, *arguments: str) -> None:
        log = (self.folder / f"{program}.log").open("ab")
        self._processes[program] = subprocess.Popen(
            [str(self.programs / program), *arguments], stdout=log, stderr=log, cwd=self.folder
        )

    def start_etcd(self) -> None:
        """Start the database."""
        url = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{free_port()}"
        self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def start_api_server(self) -> None:
        """Start the API server with roles on; it may refuse everybody for moments."""
        key = self.folder / "accounts.key"
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://soak",
            f"--cert-dir={self.folder / 'certificates'}",
            "--disable-admission-plugins=ServiceAccount",
            "--etcd-compaction-interval=0",
        )

    def start_controllers(self) -> None:
        """Start what makes pods of jobs and deployments, and what places them."""
        config = f"--kubeconfig={self.folder / 'kubeconfig'}"
        self._start(
            "kube-controller-manager",
            config,
            "--leader-elect=false",
            "--port=0",
            f"--secure-port={free_port()}",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
        )
        self._start(
            "kube-scheduler",
            config,
            "--leader-elect=false",
            "--port=0",
            f"--secure-port={free_port()}",
        )

    def kill(self, program: str) -> None:
        """End one program at once, as a crash does."""
        process = self._processes.pop(program)
        process.kill()
        process.wait()

    def close(self) -> None:
        """End everything that was started here."""
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
                continue
            process.kill()

    def ask(self, method: str, path: str, body: Document | None = None, kind: str = "") -> Document:
        """Return the answer to one request of the administrator."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.server + path, data, method=method)
        request.add_header("Authorization", f"Bearer {ADMIN}")
        if data is not None:
            request.add_header("Content-Type", kind or "application/json")
        with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
            found: Document = json.loads(answer.read() or b"{}")
        return found

    def patch(self, path: str, body: Document) -> Document:
        """Merge fields into an object."""
        return self.ask("PATCH", path, body, "application/merge-patch+json")

    def items(self, path: str) -> list[Document]:
        """Return every object of a kind."""
        found: list[Document] = self.ask("GET", path)["items"]
        return found

    def is_ready(self) -> bool:
        """Return whether the API answers its administrator."""
        try:
            self.ask("GET", "/api/v1/namespaces/default")
        except (OSError, urllib.error.URLError):
            return False
        return True

    def compact(self) -> None:
        """Let etcd forget the past up to now."""
        revision = self._ask_etcd("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        self._ask_etcd("/v3/kv/compaction", {"revision": revision, "physical": True})

    def _ask_etcd(self, path: str, body: Document) -> Document:
        url = f"http://127.0.0.1:{self.etcd_port}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: Document = json.loads(answer.read())
        return found

    def read_account_token(self, account: str) -> tuple[str, str]:
        """Return the secret that holds an account's token, and the token."""
        until(lambda: self._find_secret(account) is not None, f"the token of {account}")
        name = str(self._find_secret(account))
        return name, self._read_token(name)

    def make_account_token(self, account: str) -> str:
        """Ask for another token of an account, and return it.

        The controllers of 1.20 do not make one by themselves for a secret that they missed the
        deletion of: right after a restart they do not watch yet.
        """
        name = f"{account}-another-token"
        metadata = {"name": name, "annotations": {"kubernetes.io/service-account.name": account}}
        body = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}
        self.ask("POST", f"/api/v1/namespaces/{ACCOUNT_NAMESPACE}/secrets", body)
        until(lambda: bool(self._read_token(name)), f"another token of {account}")
        return self._read_token(name)

    def _read_token(self, secret: str) -> str:
        found = self.ask("GET", f"/api/v1/namespaces/{ACCOUNT_NAMESPACE}/secrets/{secret}")
        return base64.b64decode(found.get("data", {}).get("token", "")).decode()

    def _find_secret(self, account: str) -> str | None:
        path = f"/api/v1/namespaces/{ACCOUNT_NAMESPACE}/serviceaccounts/{account}"
        with suppress(urllib.error.HTTPError):
            for secret in self.ask("GET", path).get("secrets", ()):
                name = str(secret["name"])
                if self._read_token(name):
                    return name
        return None


@contextmanager
def control_plane(programs: Path) -> Iterator[ControlPlane]:
    """Start everything, and end it again."""
    with tempfile.TemporaryDirectory(prefix="marey-kubernetes-") as folder:
        plane = ControlPlane(programs, Path(folder))
        try:
            plane.start_etcd()
            plane.start_api_server()
            until(plane.is_ready, "the API server")
            plane.start_controllers()
            yield plane
        except BaseException:
            if "SOAK_LOGS" in os.environ:
                for log in sorted(Path(folder).glob("*.log")):
                    print(f"== {log.name} ==\n{log.read_text(errors='replace')[-3000:]}")
            raise
        finally:
            plane.close()


class Kubelet:
    """Makes nodes ready, runs what is bound to them, and lets go of what is deleted."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._nodes: dict[str, Document] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="kubelet")

    def add_node(self, name: str, capacity: Document, allocatable: Document, **labels: str) -> None:
        """Register a node."""
        common = {"cpu": "512", "memory": "2Ti", "pods": "500"}
        self._nodes[name] = {
            "capacity": {**common, **capacity},
            "allocatable": {**common, **allocatable},
        }
        metadata = {"name": name, "labels": labels}
        self._plane.ask("POST", "/api/v1/nodes", {"metadata": metadata})
        self._beat(name)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        beaten = 0.0
        while not self._stop.wait(0.2):
            with suppress(OSError, urllib.error.URLError, KeyError, ValueError):
                if time.monotonic() - beaten > HEARTBEAT_S:
                    for name in self._nodes:
                        self._beat(name)
                    beaten = time.monotonic()
                for pod in self._plane.items("/api/v1/pods"):
                    with suppress(urllib.error.HTTPError):
                        self._tend(pod)

    def _beat(self, name: str) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        status = {**self._nodes[name], "conditions": [ready]}
        self._plane.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        with suppress(urllib.error.HTTPError):
            self._plane.patch(
                f"/api/v1/nodes/{name}", {"spec": {"taints": None, "unschedulable": None}}
            )

    def _tend(self, pod: Document) -> None:
        """Bring one pod a step further."""
        meta, phase = pod["metadata"], pod["status"].get("phase")
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in meta:
            options = {"gracePeriodSeconds": 0, "apiVersion": "v1", "kind": "DeleteOptions"}
            self._plane.ask("DELETE", path, options)
        elif phase == "Pending" and not pod["status"].get("initContainerStatuses"):
            self._plane.patch(f"{path}/status", {"status": self._start_status(pod)})
        elif phase == "Running":
            ended = self._end_status(pod)
            if ended:
                self._plane.patch(f"{path}/status", {"status": ended})

    def _start_status(self, pod: Document) -> Document:
        if _get_behaviour(pod) == "init-crash":
            waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}
            crashed = _make_container_status("setup", {"waiting": waiting}, restarts=3)
            return {"phase": "Pending", "startTime": now(), "initContainerStatuses": [crashed]}
        running = _make_container_status("c", {"running": {"startedAt": now()}})
        ready = [
            {"type": kind, "status": "True", "lastTransitionTime": now()}
            for kind in ("Ready", "ContainersReady")
        ]
        # A merge replaces lists: what the scheduler wrote must stay.
        conditions = [*pod["status"].get("conditions", ()), *ready]
        status = {"phase": "Running", "startTime": now(), "containerStatuses": [running]}
        return {**status, "conditions": conditions}

    def _end_status(self, pod: Document) -> Document | None:
        code = {"succeed": 0, "fail": 1, "out-of-memory": 137}.get(_get_behaviour(pod))
        if code is None:
            return None
        reason = "OOMKilled" if code == 137 else "Error" if code else "Completed"
        ended = {"exitCode": code, "reason": reason, "finishedAt": now(), "startedAt": now()}
        container = _make_container_status("c", {"terminated": ended})
        phase = "Failed" if code else "Succeeded"
        return {"phase": phase, "containerStatuses": [container]}


def _get_behaviour(pod: Document) -> str:
    return str(pod["metadata"].get("annotations", {}).get(BEHAVIOUR, ""))


def _make_container_status(name: str, state: Document, restarts: int = 0) -> Document:
    return {
        "name": name,
        "state": state,
        "ready": "running" in state,
        "restartCount": restarts,
        "image": "none",
        "imageID": "",
    }
