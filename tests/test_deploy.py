"""Everything that conf/deploy and the workflow name exists: CLI commands, paths, times."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.node.stop_signals import JVM_WAITS_S
from group_coordinator.pipeline.settings import load_settings
from group_coordinator.pipeline.tables.store import ensure_tables

TOP = Path(__file__).parent.parent
DEPLOY = TOP / "conf" / "deploy"
PAGE = (DEPLOY / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
NAME = "group-coordinator"


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read_string((DEPLOY / f"{NAME}.service").read_text("utf-8"))
    return parser


def dockerfile() -> list[list[str]]:
    """Return each instruction with its arguments."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split(" ", 1) for line in lines]


def instruction(name: str) -> str:
    (found,) = [rest for each, rest in dockerfile() if each == name]
    return found


COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVICE, STATEFUL_SET = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))
POD = STATEFUL_SET["spec"]["template"]["spec"]
CONTAINERS: list[dict[str, Any]] = POD["containers"]
WORKFLOW: dict[str, Any] = yaml.safe_load((TOP / ".github/workflows/ci.yml").read_text("utf-8"))


def commands() -> list[list[str]]:
    """Return the words of this project's command lines, without the command's name."""
    started = shlex.split(unit()["Service"]["ExecStart"])
    checks = [each["healthcheck"]["test"] for each in SERVICES.values() if "healthcheck" in each]
    assert all(check[:2] == ["CMD", NAME] for check in checks)
    return [
        started[1:],
        json.loads(instruction("CMD")),
        *(each["command"] for each in SERVICES.values()),
        *(check[2:] for check in checks),
        *(each["args"] for each in CONTAINERS),
    ]


def take(words: list[str]) -> None:
    """Parse the command line as the CLI does, without running it; raise the CLI's error."""
    command: Any = typer.main.get_command(make_app())
    context = None
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        context = command.make_context(words[0], [], parent=context, resilient_parsing=True)
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name}"
        command = found
    if words != ["--help"]:
        command.make_context(NAME, list(words), parent=context)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_each_command_line_is_one_that_the_cli_takes(words: list[str]) -> None:
    take(words)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["rum"], "there is no command rum"),
        (["run"], "Missing parameter: root"),
        (["run", "--rot", "/data"], "No such option"),
        (["run", "--root", "/data", "--node-id", "x"], "valid int(eger)? range"),
        (["run", "--root", "/data", "more"], "unexpected extra argument"),
    ],
)
def test_a_command_line_that_the_cli_refuses_is_found(words: list[str], refusal: str) -> None:
    with pytest.raises(Exception, match=refusal):
        take(words)


def test_the_unit_stops_the_coordinator_alone_and_waits_for_its_end() -> None:
    service = unit()["Service"]
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) >= longest_end_s()
    assert service["RestartPreventExitStatus"] == "2"
    # The unit relies on the page's preparations.
    for path in re.findall(r"/(?:opt|etc)/group-coordinator\S*", service["ExecStart"]):
        assert path.removesuffix(f"/bin/{NAME}") in PAGE
    assert f"useradd --system {service['User']}\n" in PAGE


def longest_end_s() -> float:
    """Return the maximum time of a coordinator's end, s: its hand-over, and the current batch."""
    ours = load_settings().coordinator
    return ours.controlled_shutdown_timeout_ms / 1000 + JVM_WAITS_S


def test_the_image_has_what_the_project_asks_for() -> None:
    release = instruction("FROM").removeprefix("python:").removesuffix("-slim")
    assert f"Programming Language :: Python :: {release}" in PROJECT["classifiers"]
    (install,) = [rest for name, rest in dockerfile() if name == "RUN" and "pip install" in rest]
    (extras,) = re.findall(r"/src\[(.*)\]", install)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert json.loads(instruction("ENTRYPOINT")) == [NAME]
    assert NAME in PROJECT["scripts"]


def test_the_image_is_built_from_a_folder_that_has_what_the_wheel_is_made_of() -> None:
    build = SERVICES["coordinator"]["build"]
    context = (DEPLOY / build["context"]).resolve()
    assert context == TOP
    assert (context / build["dockerfile"]) == DEPLOY / "Dockerfile"
    left_out = (TOP / ".dockerignore").read_text("utf-8").splitlines()
    needed = [".src", "pipeline", "coordinator", "schemas", "conf", "pyproject.toml"]
    assert not {*needed, PROJECT["readme"], *PROJECT["license-files"]} & {*left_out}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_of_compose_has_the_root_s_volume_and_is_reached_where_it_listens(
    name: str,
) -> None:
    service = SERVICES[name]
    assert service["image"] == NAME
    (volume,) = service["volumes"]
    assert volume.partition(":")[0] in COMPOSE["volumes"]
    assert root_of(service["command"]).startswith(volume.partition(":")[2] + "/")
    ports = [each.split(":") for each in service.get("ports", ())]
    assert [port for *_, port in ports] == listens(service["command"])
    assert {host for host, *_ in ports} <= {"127.0.0.1"}, "nobody else is let in by itself"


def test_a_coordinator_in_a_container_has_the_time_that_its_end_takes() -> None:
    grace = SERVICES["coordinator"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) >= longest_end_s()
    assert POD["terminationGracePeriodSeconds"] >= longest_end_s()


def root_of(words: list[str]) -> str:
    return words[words.index("--root") + 1]


def listens(words: list[str]) -> list[str]:
    if "--listen" not in words:
        return []
    return [words[words.index("--listen") + 1].rpartition(":")[2]]


def test_the_pod_is_one_node_and_its_service_leads_to_each_port() -> None:
    spec = STATEFUL_SET["spec"]
    assert spec["replicas"] == 1, "another pod would have a disk and a root of its own"
    assert spec["serviceName"] == SERVICE["metadata"]["name"]
    labels = spec["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == spec["selector"]["matchLabels"] == labels
    (claim,) = spec["volumeClaimTemplates"]
    opened = []
    for each in CONTAINERS:
        assert each["image"] == NAME
        (mount,) = each["volumeMounts"]
        assert mount["name"] == claim["metadata"]["name"]
        assert root_of(each["args"]).startswith(mount["mountPath"] + "/")
        ports = [str(port["containerPort"]) for port in each.get("ports", ())]
        assert ports == listens(each["args"])
        opened += ports
    assert [str(port["port"]) for port in SERVICE["spec"]["ports"]] == opened


def test_the_workflow_runs_what_is_run_here_on_each_python() -> None:
    jobs = WORKFLOW["jobs"]
    (releases,) = re.findall(r"set -- ([\d. ]+)$", (TOP / ".ci/pythons").read_text("utf-8"), re.M)
    # The whole gate runs on the oldest release, the test command alone on the others.
    gate = [step["with"] for step in jobs["gate"]["steps"] if "with" in step]
    others = jobs["tests"]["strategy"]["matrix"]["python"]
    assert [gate[0]["python-version"], *others] == releases.split()
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = [word for run in runs for word in run.split() if (TOP / word).is_file()]
    assert named == [".ci/run", ".ci/run"]


def test_no_file_names_a_registry_or_another_host() -> None:
    files = [*DEPLOY.iterdir(), TOP / ".github/workflows/ci.yml", TOP / ".dockerignore"]
    for file in files:
        assert not re.findall(r"https?://(?!localhost)", file.read_text("utf-8")), file


def test_the_templates_of_issues_ask_by_commands_that_work(tmp_path: Path) -> None:
    templates = sorted((TOP / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
    assert len(templates) == 2
    asked = []
    for path in templates:
        template = yaml.safe_load(path.read_text("utf-8"))
        assert {"name", "description", "body"} <= template.keys()
        fields = [field["id"] for field in template["body"]]
        assert len(set(fields)) == len(fields)
        for field in template["body"]:
            text = " ".join(map(str, field["attributes"].values()))
            asked += re.findall(r'`group-coordinator sql "(.+?)" --root ROOT`', text)
    (query,) = asked
    ensure_tables(str(tmp_path))
    assert Catalog(str(tmp_path)).query(query).rows == []
