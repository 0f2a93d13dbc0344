"""Returns: what every frame of an episode was worth, by a returns tag.

Reads    <results>/episodes/{dataset}.parquet
Writes   {meta}/returns_{tag}.parquet
"""


rule compute_returns:
    input:
        script="workflow/scripts/compute_returns.py",
        episodes=lambda wildcards: episodes_files([dataset_of(wildcards)]),
    output:
        "{meta}/returns_{tag}.parquet",
    log:
        "<logs>/compute_returns/{tag}@{meta}.log",
    conda:
        "../../envs/environment.yaml"
    params:
        config=lambda wildcards: slice_json(
            datasets=datasets_slice([dataset_of(wildcards)], "sidecar_root"),
            returns=entries("returns", wildcards.tag),
        ),
        dataset=dataset_of,
        code=code_of("compute_returns"),
    message:
        "Compute the returns {wildcards.tag} of {params.dataset}"
    shell:
        "python {input.script} --config {params.config:q} --dataset {params.dataset} --tag {wildcards.tag}"
        " --episodes {input.episodes:q} --output {output:q} > {log:q} 2>&1"


rule returns:
    input:
        [sidecar_files("returns", tag, EXPERIMENT.datasets) for tag in EXPERIMENT.returns],
    message:
        "Returns of every dataset by every tag"
