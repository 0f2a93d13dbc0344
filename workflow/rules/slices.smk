"""What single jobs are given: parameters, each the part of the experiment that the job reads so that nothing else can rerun it, and inputs."""


def slice_json(**sections):
    """JSON of an experiment that holds only the given sections, and no name: renaming an experiment recollects no dataset."""
    return json.dumps(sections, sort_keys=True)


def entries(section, *names):
    """Whole entries of a section."""
    return {name: RAW[section][name] for name in names}


def datasets_slice(names, *keys):
    """Entries of `datasets` with path, type and the given keys only."""
    return {name: {key: RAW["datasets"][name][key] for key in ("path", "type", *keys)} for name in names}


def camera_maps_slice(datasets, cameras):
    """What the maps of datasets say of the cameras of a critic or policy."""
    used = unique(RAW["datasets"][name]["camera_map"] for name in datasets)
    return {name: {camera: RAW["camera_maps"][name][camera] for camera in cameras} for name in used if name}


def result_entry(section, tag):
    """A critic or policy without the keys that do not change what is learned."""
    return {tag: {key: value for key, value in RAW[section][tag].items() if key not in (*EXECUTION_KEYS, *ENSEMBLE_KEYS)}}


def execution_slice(section):
    """The keys of an entry that say how it is computed: as a resource, which can rerun no job."""
    return lambda wildcards: slice_json(**{section: {wildcards.tag: {key: RAW[section][wildcards.tag][key] for key in EXECUTION_KEYS}}})


def critic_slice(critic):
    """A critic and, for a value critic, the returns that it learns from."""
    learned = {"critics": result_entry("critics", critic)}
    return learned if critic in STEAM_CRITICS else learned | {"returns": returns_entry(EXPERIMENT.critics[critic].returns_tag)}


def returns_entry(tag):
    """A returns tag, without the datasets for which it is imported: one more leaves the others as they are."""
    return {tag: {key: value for key, value in RAW["returns"][tag].items() if key != "datasets"}}


def progress_slice(critic):
    """What the scores of a progress critic mean."""
    entry = {key: RAW["critics"][critic][key] for key in ("method", "k", "cameras")}
    return {"critics": {critic: entry | {"model": {"num_bins": RAW["critics"][critic]["model"]["num_bins"]}}}}


def advantages_slice(tag):
    """An advantages tag with everything that it comes from, except datasets."""
    if tag in IMPORTED["advantages"]:
        return {"advantages": entries("advantages", tag)}
    critic = EXPERIMENT.advantages[tag].critic
    judge = progress_slice(critic) if critic in STEAM_CRITICS else critic_slice(critic)
    return {"advantages": entries("advantages", tag), **judge}


def code_of(script):
    """Digest of the library code that a script imports: an edit there reruns its rule, as Snakemake cannot see it otherwise."""
    with open(f"workflow/scripts/{script}.py") as file:
        return code_digest(*re.findall(r"^from (recap_steam[\w.]*) import", file.read(), re.MULTILINE))


# Datasets.


def collected_info(wildcards):
    """The file that stands for a dataset that this workflow collects; nothing for one that was there before."""
    dataset = EXPERIMENT.datasets[wildcards.dataset]
    return [f"{os.path.normpath(dataset.path)}/meta/info.json"] if dataset.collect else []


def dataset_listing(dataset, *parts):
    """Digest over name, size and time of the files below parts of an existing dataset, so that a changed one is read again."""
    config = EXPERIMENT.datasets[dataset]
    if config.collect:
        return None  # its files come from a rule
    if not os.path.isfile(os.path.join(config.path, "meta/info.json")):
        sys.exit(
            f"error: config: datasets.{dataset}.path: no LeRobot dataset in {config.path} (meta/info.json is missing); "
            + (
                "fetch it with the target `download`, or correct the path"
                if config.download
                else "correct the path, or say under `collect` how to make the dataset"
            )
        )
    return digest_listing([os.path.join(config.path, part) for part in parts])


# Inputs and parameters of single rules.


def dataset_of(wildcards):
    """Name of the dataset that a sidecar belongs to."""
    return DATASET_OF_META[wildcards.meta]


def critic_datasets(wildcards):
    return all_datasets(EXPERIMENT.critics[wildcards.tag])


def policy_datasets(wildcards):
    return all_datasets(EXPERIMENT.policies[wildcards.tag])


def training_slice(wildcards):
    """A critic, its datasets and, for a value critic, its returns and where they are; held-out datasets have no weight."""
    config = EXPERIMENT.critics[wildcards.tag]
    keys = ("camera_map",) if wildcards.tag in STEAM_CRITICS else ("camera_map", "sidecar_root")
    return slice_json(
        datasets=datasets_slice(config.eval_datasets, *keys) | datasets_slice(config.datasets, *keys, "weight"),
        camera_maps=camera_maps_slice(all_datasets(config), config.cameras),
        **critic_slice(wildcards.tag),
    )


def values_slice(wildcards):
    """A dataset and how the critic's cameras are called there."""
    name = dataset_of(wildcards)
    return slice_json(
        datasets=datasets_slice([name], "camera_map"),
        camera_maps=camera_maps_slice([name], EXPERIMENT.critics[wildcards.tag].cameras),
    )


def imported_file(kind):
    """Input function: the sidecar that another tool wrote; nothing where a column is imported."""

    def files(wildcards):
        path, tag = EXPERIMENT.datasets[dataset_of(wildcards)].path, getattr(EXPERIMENT, kind)[wildcards.tag].imported.sidecar
        return [] if tag is None else [f"{os.path.normpath(path)}/meta/{kind}_{tag}.parquet"]

    return files


def imported_slice(kind):
    """What is imported, and the dataset that it belongs to."""

    def sliced(wildcards):
        entry = {key: value for key, value in RAW[kind][wildcards.tag].items() if key != "datasets"}
        return slice_json(datasets=datasets_slice([dataset_of(wildcards)]), **{kind: {wildcards.tag: entry}})

    return sliced


def imported_listing(kind):
    """Digest over the dataset's files of which a column is imported."""

    def listing(wildcards):
        column = getattr(EXPERIMENT, kind)[wildcards.tag].imported.column
        return None if column is None else dataset_listing(dataset_of(wildcards), "data")

    return listing


def labels_slice(tag, datasets):
    """An advantages tag and datasets with their sidecars; a progress critic's cameras are part of what its scores mean."""
    critic = EXPERIMENT.advantages[tag].critic
    if critic not in STEAM_CRITICS:
        return slice_json(datasets=datasets_slice(datasets, "sidecar_root"), **advantages_slice(tag))
    return slice_json(
        datasets=datasets_slice(datasets, "sidecar_root", "camera_map"),
        camera_maps=camera_maps_slice(datasets, EXPERIMENT.critics[critic].cameras),
        **advantages_slice(tag),
    )


def label_scores(wildcards):
    """The scores that labels come from; nothing for labels by values, which hold all that they come from."""
    critic = EXPERIMENT.advantages[wildcards.tag].critic
    return sidecar_files("scores", critic, [wildcards.dataset]) if critic in STEAM_CRITICS else []


def shown_slice(wildcards, *sections):
    """A labelled dataset, the cameras with which its critic sees it, and whole sections."""
    critic = EXPERIMENT.advantages[wildcards.tag].critic
    return slice_json(
        datasets=datasets_slice([wildcards.dataset], "sidecar_root", "camera_map"),
        camera_maps=camera_maps_slice([wildcards.dataset], EXPERIMENT.critics[critic].cameras),
        advantages={wildcards.tag: {"critic": critic}},
        critics={critic: {key: RAW["critics"][critic][key] for key in ("method", "cameras")}},
        **{section: RAW[section] for section in sections},
    )


def scores_slice(wildcards):
    """A dataset, how the critic's cameras are called there, and what the scores must mean."""
    name = dataset_of(wildcards)
    return slice_json(
        datasets=datasets_slice([name], "camera_map"),
        camera_maps=camera_maps_slice([name], EXPERIMENT.critics[wildcards.tag].cameras),
        **progress_slice(wildcards.tag),
    )


def trained_members(wildcards):
    """The files that stand for the members' folders, which are written whole."""
    return [f"{folder}/model.safetensors" for folder in member_folders(wildcards.tag)]


def members_of(wildcards):
    """Arguments that name the members of an ensemble, in order."""
    members = EXPERIMENT.critics[wildcards.tag].members or member_folders(wildcards.tag)
    return [argument for member in members for argument in ("--member", member)]


def members_listing(wildcards):
    """Digest over the files of members that were there before, so that new ones are merged anew."""
    members = EXPERIMENT.critics[wildcards.tag].members
    return digest_listing([member_source(member)[0] for member in members], (".json", ".safetensors")) if members else None


def weights_listing(model):
    """Digest over name, size and time of the files of weights and tokenizers that a model starts from, so that new ones train it anew."""
    folders = [folder for _, folder, _ in weight_folders(model)]
    return digest_listing(folders, (".json", ".safetensors")) if folders else None


def init_folder(wildcards):
    """Arguments that name the policy which training starts from."""
    start = EXPERIMENT.policies[wildcards.tag].init_from
    return ["--init-dir", f"{RESULTS}/policies/{start}"] if start else []


def init_weights(wildcards):
    start = EXPERIMENT.policies[wildcards.tag].init_from
    return policy_weights(start) if start else []


def policy_labels(wildcards):
    config = EXPERIMENT.policies[wildcards.tag]
    return sidecar_files("advantages", config.advantage_tag, labelled_datasets(EXPERIMENT, config))


def norm_stats_slice(wildcards):
    """Which frames a policy learns from."""
    policy = {key: RAW["policies"][wildcards.policy][key] for key in ("datasets", "frame_filter")}
    return slice_json(datasets=datasets_slice(policy["datasets"]), policies={wildcards.policy: policy})


def policy_slice(wildcards):
    """A policy, its datasets and, if it is conditioned on labels, their parameters and where they are; held-out ones have no weight."""
    config = EXPERIMENT.policies[wildcards.tag]
    labels = advantages_slice(config.advantage_tag) if config.advantage_tag else {}
    labelled = labelled_datasets(EXPERIMENT, config)
    datasets = datasets_slice(config.eval_datasets, "camera_map") | datasets_slice(config.datasets, "camera_map", "weight")
    return slice_json(
        datasets=datasets | datasets_slice(labelled, "camera_map", "weight", "sidecar_root"),
        camera_maps=camera_maps_slice(all_datasets(config), config.cameras),
        policies=result_entry("policies", wildcards.tag),
        **labels,
    )


def collecting_policy(wildcards):
    return EXPERIMENT.datasets[DATASET_OF_ROOT[wildcards.root]].collect.policy


def collect_slice(wildcards):
    name = DATASET_OF_ROOT[wildcards.root]
    return slice_json(
        datasets=datasets_slice([name], "collect"),
        environments=entries("environments", EXPERIMENT.datasets[name].collect.environment),
    )


def first_arm(wildcards):
    """What an arm is compared with while it runs, if it may stop early; nothing for the first arm itself."""
    first = arm_files(wildcards.tag)[0]
    mine = f"{RESULTS}/evaluations/{wildcards.tag}/{wildcards.policy}_{wildcards.arm}.parquet"
    return [] if EXPERIMENT.evaluations[wildcards.tag].stop_below is None or mine == first else [first]


def arm_slice(wildcards):
    """An evaluation as if it were of this one policy, so that a new policy or guidance scale only adds arms, and the first never stops."""
    evaluation = RAW["evaluations"][wildcards.tag]
    kept = {key: value for key, value in evaluation.items() if key not in ("cfgrl_guidance_scale", "devices", "video_critic")}
    stop_below = kept["stop_below"] if first_arm(wildcards) else None
    return slice_json(
        evaluations={wildcards.tag: {**kept, "policies": [wildcards.policy], "stop_below": stop_below}},
        environments=entries("environments", evaluation["environment"]),
    )


def arm_videos_slice(wildcards):
    """What an arm's episodes are run again from, and how many."""
    evaluation = RAW["evaluations"][wildcards.tag]
    return slice_json(
        evaluations={wildcards.tag: {key: evaluation[key] for key in ("environment", "num_episodes", "seed", "through_server")}},
        environments=entries("environments", evaluation["environment"]),
        diagnostics={"num_episodes": RAW["diagnostics"]["num_episodes"]},
    )


def guidance(wildcards):
    """Arguments that set the guidance scale of a conditioned policy."""
    scales = EXPERIMENT.evaluations[wildcards.tag].cfgrl_guidance_scale
    return [argument for scale in scales if wildcards.arm == f"w{scale:g}" for argument in ("--guidance-scale", repr(scale))]


def report_slice():
    """The whole experiment, except how and where it is computed, and whose values the videos of arms show."""
    kept, unread = {key: value for key, value in RAW.items() if key not in SITE_KEYS}, (*EXECUTION_KEYS, "video_critic")
    for section in ("critics", "policies", "evaluations"):
        kept[section] = {tag: {key: value for key, value in entry.items() if key not in unread} for tag, entry in RAW[section].items()}
    return json.dumps(kept, sort_keys=True)


# Published files.


def labels_of(dataset):
    """Advantages tags by which a critic labels a dataset."""
    return [tag for tag, advantages in EXPERIMENT.judged_labels.items() if dataset in advantages.datasets]


def mixture_slice(wildcards):
    names = unique(name for tag in labels_of(wildcards.dataset) for name in EXPERIMENT.advantages[tag].datasets)
    return slice_json(datasets=datasets_slice(names, "sidecar_root", "weight"))


def published_receipts(wildcards):
    """stats.json has room for one returns tag, so with several the user must choose."""
    if len(EXPERIMENT.returns) > 1:
        example = f"{RESULTS}/published/{next(iter(EXPERIMENT.datasets))}/returns_{next(iter(EXPERIMENT.returns))}.json"
        sys.exit(
            f"error: publish_stats: stats.json has room for one of the returns tags {', '.join(EXPERIMENT.returns)}; "
            f"ask for its receipts instead, for example {example}"
        )
    return [f"{RESULTS}/published/{name}/returns_{tag}.json" for tag in EXPERIMENT.returns for name in returns_datasets(EXPERIMENT, tag)]
