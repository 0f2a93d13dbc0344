"""Names of the files that rules make and read, by tag and dataset."""

TOKENIZER_FILES = ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]
CRITIC_FILES = [
    "model.safetensors",
    "config.json",
    "normalizer.json",
    "lineage.json",
    "metrics.jsonl",
    "evaluation.json",
    *TOKENIZER_FILES,
]
MEMBER_FILES = [file for file in CRITIC_FILES if file != "normalizer.json"]
ENSEMBLE_FILES = ["merge_manifest.json", *(file for file in MEMBER_FILES if file != "metrics.jsonl")]
POLICY_FILES = [
    "model.safetensors",
    "config.json",
    "policy_preprocessor.json",
    "policy_preprocessor_step_2_normalizer_processor.safetensors",
    "policy_postprocessor.json",
    "policy_postprocessor_step_0_unnormalizer_processor.safetensors",
    "serving.json",
    "lineage.json",
    "metrics.jsonl",
    *TOKENIZER_FILES,
]
INDEXED_PARTS = ["data", "meta/info.json", "meta/episodes", "meta/episodes.jsonl", "meta/tasks.parquet", "meta/tasks.jsonl"]
PICTURE_PARTS = ["videos", "images"]
DATASETS_FILES = ["index.html", "summary.txt", "lengths.png", "datasets.parquet", "episodes.parquet"]
REPORT_FILES = {  # what `snakemake --report` calls them: category and name
    "index.html": ("Overview", "the whole report"),
    "summary.txt": None,
    "success.png": ("Evaluation", "success rates"),
    "guidance.png": ("Evaluation", "success by guidance scale"),
    "critic_evaluation.png": ("Critic", "calibration and success"),
    "predicted_returns.png": ("Critic", "predicted against true return"),
    "critic_training.png": ("Critic", "learning curves"),
    "ensemble_training.png": ("Critic", "learning curves of ensembles"),
    "values.png": ("Critic", "value over an episode"),
    "advantages.png": ("Labels", "distribution and threshold"),
    "positive_rate.png": ("Labels", "positive by outcome"),
    "positive_rate_over_time.png": ("Labels", "positive over time"),
    "policy_training.png": ("Policies", "learning curves"),
}


def in_folder(folder, files):
    return [f"{folder}/{file}" for file in files]


def episodes_files(datasets):
    return [f"{RESULTS}/episodes/{name}.parquet" for name in datasets]


def frames_files(datasets, image_size):
    return [f"{RESULTS}/frames/{name}_{image_size}px.arrow" for name in datasets]


def sidecar_files(kind, tag, datasets):
    return [f"{meta_folder(name, EXPERIMENT.datasets[name])}/{kind}_{tag}.parquet" for name in datasets]


def judgements(tag, datasets):
    """What labels are computed from: returns and values, or the scores of a progress critic."""
    critic = EXPERIMENT.advantages[tag].critic
    if critic in STEAM_CRITICS:
        return sidecar_files("scores", critic, datasets)
    return [*sidecar_files("returns", EXPERIMENT.critics[critic].returns_tag, datasets), *sidecar_files("values", critic, datasets)]


def threshold_files(tags):
    return [f"{RESULTS}/thresholds/{tag}.yaml" for tag in tags]


def critic_files(tag):
    return in_folder(f"{RESULTS}/critics/{tag}", ENSEMBLE_FILES if tag in STEAM_CRITICS else CRITIC_FILES)


def critic_records(tag):
    """What the report reads of a critic: lineage, held-out evaluation, course of training (by member) and origin of an ensemble's members."""
    folder, names = f"{RESULTS}/critics/{tag}", ["lineage.json", "evaluation.json", "metrics.jsonl"]
    if tag in VALUE_CRITICS:
        return in_folder(folder, names)
    return [
        *in_folder(folder, [*names[:2], "merge_manifest.json"]),
        *(file for member in member_folders(tag) for file in in_folder(member, names)),
    ]


def member_folders(tag):
    """Folders of the members that this workflow trains for a progress critic; none if it merges members that are there."""
    config = EXPERIMENT.critics[tag]
    return [] if config.members else [f"{RESULTS}/critics/{tag}/members/{member}" for member in range(config.ensemble_size)]


def diagnostics_folders():
    """One for every label tag that is not imported and dataset that it labels."""
    return [f"{RESULTS}/diagnostics/{tag}/{dataset}" for tag, config in EXPERIMENT.judged_labels.items() for dataset in config.datasets]


def chosen_videos(tag, dataset):
    """Input function: videos of the chosen episodes of a dataset, once these are chosen."""

    def files(wildcards):
        with open(checkpoints.choose_episodes.get(dataset=dataset).output[0]) as file:
            return [f"{RESULTS}/videos/{tag}/{dataset}/episode_{episode:06d}.mp4" for episode in json.load(file)]

    return files


def arm_videos():
    """Folders of videos of every arm of the evaluations that name a critic for them."""
    return [
        f"{RESULTS}/evaluation_videos/{tag}/{arm_name(*arm)}"
        for tag, config in EXPERIMENT.evaluations.items()
        if config.video_critic
        for arm in evaluation_arms(EXPERIMENT, tag)
    ]


def reported(folder, files):
    """Outputs with what `snakemake --report` says of them; captions lie in workflow/report."""

    def described(file, category, name):
        return report(f"{folder}/{file}", caption=f"../report/{file.split('.')[0]}.rst", category=category, labels={"shown": name})

    return [described(file, *shown) if shown else f"{folder}/{file}" for file, shown in files.items()]


def run_time_files():
    """Tables of run times below the logs, in the order of the workflow. Not inputs: whoever deletes logs must not train again."""
    trained = [*EXPERIMENT.critics.values(), *EXPERIMENT.policies.values()]
    frames = [file for entry in trained for file in frames_files(all_datasets(entry), entry.model.image_size)]
    meta = {name: meta_folder(name, dataset) for name, dataset in EXPERIMENT.datasets.items()}
    passes = {"compute_values": VALUE_CRITICS, "compute_scores": STEAM_CRITICS}
    names = [
        *(f"collect_dataset/dataset@{root}" for root in DATASET_OF_ROOT),
        *(f"cache_frames/{os.path.basename(file).removesuffix('.arrow')}" for file in unique(frames)),
        *(f"train_critic/{tag}" for tag in VALUE_CRITICS),
        *(f"train_member/{tag}/{os.path.basename(folder)}" for tag in STEAM_CRITICS for folder in member_folders(tag)),
        *(f"{rule}/{tag}@{meta[name]}" for rule, tags in passes.items() for tag in tags for name in value_datasets(EXPERIMENT, tag)),
        *(f"train_policy/{tag}" for tag in EXPERIMENT.policies),
        *(f"evaluate_policy/{tag}/{arm_name(*arm)}" for tag in EXPERIMENT.evaluations for arm in evaluation_arms(EXPERIMENT, tag)),
    ]
    return [f"{name}.tsv" for name in names]


def policy_files(tag):
    return in_folder(f"{RESULTS}/policies/{tag}", POLICY_FILES)


def policy_weights(tag):
    """The file that stands for a policy's folder, which is written whole; nothing for the scripted expert."""
    return [] if tag == EXPERT else [f"{RESULTS}/policies/{tag}/model.safetensors"]


def policy_folder(tag):
    """Arguments that name the folder of a policy; nothing for the scripted expert."""
    return [] if tag == EXPERT else ["--policy-dir", f"{RESULTS}/policies/{tag}"]


def arm_files(evaluation):
    """One file for each policy without indicator, one for each guidance scale of the others."""
    return [f"{RESULTS}/evaluations/{evaluation}/{arm_name(*arm)}.parquet" for arm in evaluation_arms(EXPERIMENT, evaluation)]
