"""Files for other schedulers have what those ask, as far as they are used in examples and docs.

The schemas are written here from the references of Kubernetes, KubeRay, Argo and SkyPilot.
"""

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))


def known(required, **properties):
    """A mapping with these keys and no others."""
    names = required.split()
    return {
        "type": "object",
        "required": names,
        "properties": {key: {} for key in names} | properties,
        "additionalProperties": False,
    }


TEXT, WHOLE = {"type": "string"}, {"type": "integer", "minimum": 0}
WORDS = {"type": "array", "items": TEXT, "minItems": 1}


def several(item):
    """A list of at least one."""
    return {"type": "array", "items": item, "minItems": 1}


VOLUME = known("name", name=TEXT, persistentVolumeClaim=known("claimName", claimName=TEXT))
QUANTITY = {"type": ["string", "integer"], "pattern": r"^[0-9]+(m|[KMGT]i?)?$"}
CONTAINER = {
    "name": TEXT,
    "image": TEXT,
    "workingDir": TEXT,
    "volumeMounts": several(known("name mountPath", name=TEXT, mountPath=TEXT)),
    "resources": known("limits", limits={"additionalProperties": QUANTITY}),
    "command": WORDS,
    "args": WORDS,
}
POD = known(
    "containers",
    restartPolicy={"enum": ["OnFailure", "Never"]},
    volumes=several(VOLUME),
    containers=several(known("name image", **CONTAINER)),
)
GROUP = {
    "rayStartParams": {"type": "object", "additionalProperties": TEXT},
    "template": known("spec", spec=POD),
}
PARAMETERS = known("parameters", parameters=several(known("name", name=TEXT, value=TEXT)))
STEP = known(
    "name template",
    arguments=PARAMETERS,
    withSequence=known("", start=TEXT, end=TEXT),
)
SPECS = {
    "Job": known(
        "template",
        completionMode={"const": "Indexed"},
        completions=WHOLE,
        parallelism=WHOLE,
        backoffLimit=WHOLE,
        template=known("spec", spec=POD),
    ),
    "RayJob": known(
        "entrypoint rayClusterSpec",
        shutdownAfterJobFinishes={"type": "boolean"},
        backoffLimit=WHOLE,
        rayClusterSpec=known(
            "headGroupSpec",
            rayVersion=TEXT,
            headGroupSpec=known("rayStartParams template", **GROUP),
            workerGroupSpecs=several(
                known(
                    "groupName rayStartParams template",
                    replicas=WHOLE, minReplicas=WHOLE, maxReplicas=WHOLE, **GROUP,
                )
            ),
        ),
    ),
    "Workflow": known(
        "entrypoint templates",
        parallelism=WHOLE,
        volumes=several(VOLUME),
        templates=several(
            known(
                "name",
                steps=several(several(STEP)),
                retryStrategy=known("", limit=TEXT),
                inputs=PARAMETERS,
                container=known("image", **CONTAINER),
            )
        ),
    ),
}  # fmt: skip
SKY = known(
    "run",
    resources=known("", accelerators=TEXT, ports=WHOLE),
    secrets={"type": "object"},
    setup=TEXT,
)


def of_kind(kind):
    """The manifest of a kind; there is one."""
    made = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in MANIFESTS]
    (manifest,) = [one for one in made if one["kind"] == kind]
    return manifest


@pytest.mark.parametrize("kind", SPECS)
def test_a_manifest_has_what_its_kind_asks(kind):
    manifest = of_kind(kind)
    assert manifest.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert manifest["metadata"].keys() & {"name", "generateName"}
    jsonschema.validate(manifest["spec"], SPECS[kind])


def test_steps_of_the_workflow_name_its_templates():
    spec = of_kind("Workflow")["spec"]
    names = {one["name"] for one in spec["templates"]}
    steps = [step for one in spec["templates"] for group in one.get("steps", []) for step in group]
    assert {spec["entrypoint"], *(step["template"] for step in steps)} <= names


def test_a_task_of_skypilot_has_only_what_it_knows():
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(# \w+\.sky\.yaml.*?)```", page, re.DOTALL)
    jsonschema.validate(yaml.safe_load(text), SKY)
