"""The wheel: built from this tree, installed into an empty environment, and used from there."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from tests.cli.processes import get

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.real, pytest.mark.timeout(1_500)]


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=1_200,
        stdin=subprocess.DEVNULL,
        # Nothing of this environment may be found by the other one.
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert (ROOT / "src/marey/api/web/index.html").is_file(), "run `make setup` first"
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist",
        f"-Cbuild-dir={folder / 'build'}", ".", cwd=ROOT,
    )  # fmt: skip
    (made,) = (folder / "dist").glob("marey-*.whl")
    return made


def test_the_wheel_has_the_web_app_the_native_parser_and_the_data_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "marey/api/web/index.html" in names
    assert any(name.startswith("marey/api/web/assets/") for name in names)
    assert any(name.startswith("marey/_native.") for name in names)
    assert "marey/model/metrics.toml" in names
    assert not any(name.startswith(("tests/", "bench/", "web/")) for name in names)
    assert not any("__pycache__" in name or name.endswith(".duckdb") for name in names)


def test_installed_into_an_empty_environment_it_serves_a_demo_with_its_pages(
    wheel: Path, tmp_path: Path
) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "--disable-pip-version-check", "-q", "install", wheel, cwd=tmp_path)
    where = run(python, "-c", "import marey; print(marey.__path__[0])", cwd=tmp_path).strip()
    assert where.startswith(str(home)), "another marey than the installed one"
    process = subprocess.Popen(
        [str(home / "bin" / "marey"), "demo", "--gpus", "32", "--hours", "0", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), process.communicate()[1]
        page = urllib.request.urlopen(f"{url}/", timeout=120).read().decode()
        assert '<div id="root">' in page
        script = page.split('src="', 1)[1].split('"', 1)[0]
        assert urllib.request.urlopen(url + script, timeout=120).status == 200
        assert urllib.request.urlopen(f"{url}/sources", timeout=120).status == 200
        assert len(get(f"{url}/api/v1/cluster")["units"]) == 32
        assert get(f"{url}/api/v1/sources")["rows"][0]["state"] in ("fresh", "waiting")
        process.terminate()
        assert process.wait(120) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
