"""Links between the documents lead somewhere, both readmes have the same parts, the page on clusters says what profiles and code say."""

import re
from pathlib import Path

import pytest
import yaml

from recap_steam.schema import SCHEMA_PATH

REPOSITORY = Path(__file__).parents[2]
READMES = [REPOSITORY / "README.md", REPOSITORY / "README.zh.md"]
DOCUMENTS = [*READMES, REPOSITORY / "config/README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text())
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_into_a_page_lead_to_a_heading(path: Path) -> None:
    for page, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text()):
        assert anchor in anchors((path.parent / page if page else path).read_text()), f"{page}#{anchor}"


def anchors(text: str) -> set[str]:
    """What headings are called in links."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_both_readmes_have_the_same_parts() -> None:
    parts = [[line.split()[0] for line in path.read_text().splitlines() if re.match(r"#+ |```\w", line)] for path in READMES]
    assert parts[0] == parts[1] and len(parts[0]) > 10


CLUSTER = (REPOSITORY / "docs/cluster.md").read_text()
PROFILES = {name: yaml.safe_load((REPOSITORY / f"profiles/{name}/config.v9+.yaml").read_text()) for name in ("slurm", "slurm-ascend")}


def test_the_keys_of_the_page_on_clusters_are_those_of_profiles_and_schema() -> None:
    table = CLUSTER[CLUSTER.index("| key | ask the site for |") : CLUSTER.index("3. **Devices.**")]
    rows = [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in table.splitlines() if line.lstrip().startswith("| `")]
    schema = yaml.safe_load(SCHEMA_PATH.read_text())["properties"]
    assert len(rows) > 7
    for first, *others in rows:
        section, _, key = first.rpartition(": ")
        for name in (key, *others):
            if section == "config":
                assert name in schema
            else:
                assert all(name in (profile[section] if section else profile) for profile in PROFILES.values()), name


def test_yaml_of_the_page_on_clusters_is_of_keys_that_profiles_may_have() -> None:
    parser = pytest.importorskip("snakemake.cli").get_argument_parser()
    known = {option.removeprefix("--") for action in parser._actions for option in action.option_strings}
    for text in re.findall(r"```yaml\n(.+?)```", CLUSTER, re.DOTALL):
        assert not [key for key in yaml.safe_load(text) if key not in known and not key.startswith("cluster-generic-")]


def test_numbers_of_the_page_on_clusters_are_those_of_code_and_profiles() -> None:
    source = (REPOSITORY / "src/recap_steam/slurm.py").read_text()
    first, stop = re.search(r"PORTS = range\((\d+), (\d+)\)", source).groups()
    page = " ".join(CLUSTER.split())
    assert f"a port between {first} and {int(stop) - 1}" in page
    for profile in PROFILES.values():
        assert f"--signal=TERM@{re.search('([0-9]+) s before `runtime`', page)[1]}" in profile["default-resources"]["slurm_extra"]
        assert f"Status is asked for after {profile['slurm-init-seconds-before-status-checks']} s" in page
        assert f"`latency-wait: {profile['latency-wait']}`" in page
