"""Returns: what every frame of an episode was worth, by a returns tag; or as another tool computed it.

Reads    <results>/episodes/{dataset}.parquet, and of imported ones <path>/meta/returns_{another}.parquet or a column of the dataset
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
    wildcard_constraints:
        tag=one_of(tag for tag in EXPERIMENT.returns if tag not in IMPORTED["returns"]),
    conda:
        "../../envs/environment.yaml"
    params:
        config=lambda wildcards: slice_json(
            datasets=datasets_slice([dataset_of(wildcards)], "sidecar_root"),
            returns=returns_entry(wildcards.tag),
        ),
        dataset=dataset_of,
        code=code_of("compute_returns"),
    message:
        "Compute the returns {wildcards.tag} of {params.dataset}"
    shell:
        "python {input.script} --config {params.config:q} --dataset {params.dataset} --tag {wildcards.tag}"
        " --episodes {input.episodes:q} --output {output:q} > {log:q} 2>&1"


rule import_returns:
    input:
        imported_file("returns"),
        script="workflow/scripts/import_sidecar.py",
        episodes=lambda wildcards: episodes_files([dataset_of(wildcards)]),
    output:
        "{meta}/returns_{tag}.parquet",
    log:
        "<logs>/import_returns/{tag}@{meta}.log",
    wildcard_constraints:
        tag=one_of(IMPORTED["returns"]),
    conda:
        "../../envs/environment.yaml"
    params:
        config=imported_slice("returns"),
        dataset=dataset_of,
        code=code_of("import_sidecar"),
        listing=imported_listing("returns"),
    message:
        "Import the returns {wildcards.tag} of {params.dataset}, which carry no lineage"
    shell:
        "python {input.script} --config {params.config:q} --kind returns --dataset {params.dataset} --tag {wildcards.tag}"
        " --episodes {input.episodes:q} --output {output:q} > {log:q} 2>&1"


rule returns:
    input:
        [sidecar_files("returns", tag, returns_datasets(EXPERIMENT, tag)) for tag in EXPERIMENT.returns],
    message:
        "Returns of every dataset by every tag"
