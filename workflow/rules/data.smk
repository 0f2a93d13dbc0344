"""Datasets: what is in them, and their frames at the resolution of the models.

Reads    a LeRobot dataset (v2.1 or v3.0)
Writes   <results>/episodes/{dataset}.parquet          episodes, outcomes, fingerprints
         <results>/frames/{dataset}_{size}px.arrow     decoded frames of all cameras that are used at this size
"""


rule index_dataset:
    input:
        collected_info,
        script="workflow/scripts/index_dataset.py",
    output:
        "<results>/episodes/{dataset}.parquet",
    log:
        "<logs>/index_dataset/{dataset}.log",
    conda:
        "../../envs/environment.yaml"
    params:
        config=lambda wildcards: slice_json(datasets=datasets_slice([wildcards.dataset])),
        files=lambda wildcards: dataset_listing(
            wildcards.dataset,
            "data",
            "meta/info.json",
            "meta/episodes",
            "meta/episodes.jsonl",
            "meta/tasks.parquet",
            "meta/tasks.jsonl",
        ),
        code=code_of("index_dataset"),
    message:
        "Index the episodes of {wildcards.dataset}"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --output {output:q} > {log:q} 2>&1"


rule cache_frames:
    input:
        script="workflow/scripts/cache_frames.py",
        episodes="<results>/episodes/{dataset}.parquet",
    output:
        "<results>/frames/{dataset}_{size}px.arrow",
    log:
        "<logs>/cache_frames/{dataset}_{size}px.log",
    benchmark:
        "<logs>/cache_frames/{dataset}_{size}px.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        runtime=240,
    params:
        config=lambda wildcards: slice_json(datasets=datasets_slice([wildcards.dataset])),
        files=lambda wildcards: dataset_listing(wildcards.dataset, "videos", "images"),
        cameras=lambda wildcards: cached_cameras(EXPERIMENT, wildcards.dataset, int(wildcards.size)),
        code=code_of("cache_frames"),
    message:
        "Decode the frames of {wildcards.dataset} at {wildcards.size} pixels"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --episodes {input.episodes:q}"
        " --cameras {params.cameras:q} --image-size {wildcards.size} --output {output:q} > {log:q} 2>&1"


rule datasets:
    input:
        episodes_files(EXPERIMENT.datasets),
    message:
        "Index of every dataset"
