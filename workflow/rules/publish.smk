"""What tools of the reference expect in a dataset's meta folder. Made only by the targets `mixture` and `publish_stats`.

Both files may have been there before us, so they are not declared as outputs, which Snakemake would delete. The receipts are.

Reads    <results>/thresholds/{tag}.yaml, <results>/episodes/{dataset}.parquet, {meta}/returns_{tag}.parquet
Writes   {meta}/mixture_config.yaml, <path>/meta/stats.json (undeclared)
         <results>/published/{dataset}/mixture.json, <results>/published/{dataset}/returns_{tag}.json
"""


rule merge_mixture:
    input:
        script="workflow/scripts/merge_mixture.py",
        thresholds=lambda wildcards: threshold_files(labels_of(wildcards.dataset)),
    output:
        "<results>/published/{dataset}/mixture.json",
    log:
        "<logs>/merge_mixture/{dataset}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=mixture_slice,
        code=code_of("merge_mixture"),
    message:
        "Write mixture_config.yaml of {wildcards.dataset}"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --thresholds {input.thresholds}"
        " --output {output} > {log} 2>&1"


rule merge_stats:
    input:
        script="workflow/scripts/publish_stats.py",
        episodes="<results>/episodes/{dataset}.parquet",
        returns=lambda wildcards: sidecar_files("returns", wildcards.tag, [wildcards.dataset]),
    output:
        "<results>/published/{dataset}/returns_{tag}.json",
    log:
        "<logs>/merge_stats/{dataset}/{tag}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        config=lambda wildcards: slice_json(
            datasets=datasets_slice([wildcards.dataset], "sidecar_root"),
            returns=returns_entry(wildcards.tag),
        ),
        code=code_of("publish_stats"),
    message:
        "Merge the statistics of the returns {wildcards.tag} into stats.json of {wildcards.dataset}"
    shell:
        "python {input.script} --config {params.config:q} --dataset {wildcards.dataset} --tag {wildcards.tag}"
        " --episodes {input.episodes} --output {output} > {log} 2>&1"


rule mixture:
    input:
        [f"{RESULTS}/published/{name}/mixture.json" for name in EXPERIMENT.datasets if labels_of(name)],
    message:
        "mixture_config.yaml of every labelled dataset"


rule publish_stats:
    input:
        published_receipts,
    message:
        "Return statistics in stats.json of every dataset"
