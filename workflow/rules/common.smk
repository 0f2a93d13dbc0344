"""The checked experiment and what follows from it at once. Functions of the workflow live in files.smk, slices.smk and devices.smk."""

import glob
import json
import os
import re
import sys

from recap_steam.config import (
    ENSEMBLE_KEYS,
    EXECUTION_KEYS,
    EXPERT,
    SITE_KEYS,
    ProgressCriticConfig,
    arm_name,
    evaluation_arms,
    load_experiment,
    meta_folder,
    whole_experiment,
)
from recap_steam.errors import UserError
from recap_steam.lineage import code_digest, digest_listing
from recap_steam.model_config import weight_folders
from recap_steam.references import all_datasets, cached_cameras, check_references, labelled_datasets, returns_datasets, value_datasets
from recap_steam.schema import refuse_duplicate_keys
from recap_steam.steam_checks import member_source

try:
    for file in workflow.configfiles:
        refuse_duplicate_keys(file)
    RAW = whole_experiment(config)
    EXPERIMENT = load_experiment(RAW)
    check_references(EXPERIMENT)
except UserError as error:
    sys.exit(f"error: {error}")  # one line, where an exception would print the file and line of this statement

# Jobs run the interpreter that runs Snakemake, whether or not its environment is activated.
os.environ.update(PATH=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]))

# Finished jobs leave here what a unit of their work took, for `make plan`.
os.environ.setdefault("RECAP_STEAM_RATES", "state/rates")

RESULTS = f"results/{EXPERIMENT.experiment}"
STATE = f"state/{EXPERIMENT.experiment}"
STEAM_CRITICS = [tag for tag, critic in EXPERIMENT.critics.items() if isinstance(critic, ProgressCriticConfig)]
VALUE_CRITICS = [tag for tag in EXPERIMENT.critics if tag not in STEAM_CRITICS]
IMPORTED = {kind: [tag for tag, entry in RAW[kind].items() if "imported" in entry] for kind in ("returns", "advantages")}
DATASET_OF_META = {meta_folder(name, dataset): name for name, dataset in EXPERIMENT.datasets.items()}
DATASET_OF_ROOT = {os.path.normpath(dataset.path): name for name, dataset in EXPERIMENT.datasets.items() if dataset.collect}


pathvars:
    results=RESULTS,
    logs=f"logs/{EXPERIMENT.experiment}",


def one_of(names):
    """Regular expression that matches exactly the given names; nothing if there are none."""
    return "|".join(re.escape(name) for name in names) or "(?!)"


wildcard_constraints:
    dataset=one_of(EXPERIMENT.datasets),
    meta=one_of(DATASET_OF_META),
    root=one_of(DATASET_OF_ROOT),
    policy=one_of([EXPERT, *EXPERIMENT.policies]),
    tag="[a-z0-9][a-z0-9_]*",
    size="[0-9]+",
    arm=r"plain|w[0-9.e+-]+",
    member="[0-9]+",


def unique(names):
    return list(dict.fromkeys(names))
