"""Datasets: what is in them, and their frames at the resolution of the models.

Reads    a LeRobot dataset (v2.0, v2.1 or v3.0)
Writes   <results>/episodes/{dataset}.parquet          episodes, outcomes, fingerprints
         <results>/frames/{dataset}_{size}px.arrow     decoded frames of all cameras that are used at this size
         <results>/datasets/                           what is in every dataset and what is wrong with it: page, text, tables
         <results>/downloads/{dataset}.json            what was fetched from the hub, on demand only, and what was counted in it
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
        files=lambda wildcards: dataset_listing(wildcards.dataset, *INDEXED_PARTS),
        code=code_of("index_dataset"),
    message:
        "Index the episodes of {wildcards.dataset}"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --output {output:q} > {log:q} 2>&1"


rule download_dataset:
    output:
        "<results>/downloads/{dataset}.json",
    log:
        "<logs>/download_dataset/{dataset}.log",
    localrule: True  # a cluster's nodes seldom reach the internet
    conda:
        "../../envs/environment.yaml"
    params:
        script="workflow/scripts/download_dataset.py",  # no input: another version of it downloads nothing anew
        config=lambda wildcards: slice_json(datasets=datasets_slice([wildcards.dataset], "download")),
    message:
        "Download {wildcards.dataset} from the hub"
    shell:
        "python {params.script} --config {params.config:q} --dataset {wildcards.dataset} --output {output:q} 2>&1 | tee {log:q}"


rule download:
    input:
        [f"{RESULTS}/downloads/{name}.json" for name, dataset in EXPERIMENT.datasets.items() if dataset.download],
    message:
        "Every dataset that is to be downloaded"


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
        files=lambda wildcards: dataset_listing(wildcards.dataset, *PICTURE_PARTS),
        cameras=lambda wildcards: cached_cameras(EXPERIMENT, wildcards.dataset, int(wildcards.size)),
        code=code_of("cache_frames"),
    message:
        "Decode the frames of {wildcards.dataset} at {wildcards.size} pixels"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --episodes {input.episodes:q}"
        " --cameras {params.cameras:q} --image-size {wildcards.size} --output {output:q} > {log:q} 2>&1"


rule report_datasets:
    input:
        [f"{os.path.normpath(EXPERIMENT.datasets[name].path)}/meta/info.json" for name in DATASET_OF_ROOT.values()],
        script="workflow/scripts/report_datasets.py",
    output:
        in_folder("<results>/datasets", DATASETS_FILES),
    log:
        "<logs>/report_datasets.log",
    priority: 1  # before an index that a defect may stop
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=slice_json(datasets=datasets_slice(EXPERIMENT.datasets)),
        files=lambda wildcards: [dataset_listing(name, *INDEXED_PARTS, *PICTURE_PARTS) for name in EXPERIMENT.datasets],
        code=code_of("report_datasets"),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Look at the datasets"
    shell:
        "python {input.script} --config {params.config:q} --output-dir {params.folder} 2>&1 | tee {log}"


rule datasets:
    input:
        rules.report_datasets.output,
        episodes_files(EXPERIMENT.datasets),
    message:
        "Every dataset: what is in it, and its index"
