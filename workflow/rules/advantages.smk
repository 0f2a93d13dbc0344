"""Advantages and labels: how much better than expected each frame was, and which frames count as positive. No accelerator.
Or labels that another tool made.

Reads    <results>/episodes/, <results>/critics/{critic}/
         {meta}/returns_{tag}.parquet and {meta}/values_{critic}.parquet, or {meta}/scores_{critic}.parquet by a progress critic
         of imported ones <path>/meta/advantages_{another}.parquet or a column of the dataset
Writes   <results>/thresholds/{tag}.yaml          threshold of each pool and the positive rates that came out
         {meta}/advantages_{tag}.parquet
"""


rule compute_threshold:
    input:
        script="workflow/scripts/compute_threshold.py",
        critic=lambda wildcards: f"{RESULTS}/critics/{EXPERIMENT.advantages[wildcards.tag].critic}/lineage.json",
        episodes=lambda wildcards: episodes_files(EXPERIMENT.advantages[wildcards.tag].datasets),
        judgements=lambda wildcards: judgements(wildcards.tag, EXPERIMENT.advantages[wildcards.tag].datasets),
    output:
        "<results>/thresholds/{tag}.yaml",
    log:
        "<logs>/compute_threshold/{tag}.log",
    conda:
        "../../envs/environment.yaml"
    params:
        config=lambda wildcards: labels_slice(wildcards.tag, EXPERIMENT.advantages[wildcards.tag].datasets),
        code=code_of("compute_threshold"),
        critic=lambda wildcards, input: os.path.dirname(input.critic),
        episodes=lambda wildcards, input: os.path.dirname(input.episodes[0]),
    message:
        "Find the threshold of the labels {wildcards.tag}"
    shell:
        "python {input.script} --config {params.config:q} --tag {wildcards.tag} --critic-dir {params.critic}"
        " --episodes-dir {params.episodes} --output {output} > {log} 2>&1"


rule compute_advantages:
    input:
        script="workflow/scripts/compute_advantages.py",
        critic=lambda wildcards: f"{RESULTS}/critics/{EXPERIMENT.advantages[wildcards.tag].critic}/lineage.json",
        episodes=lambda wildcards: episodes_files([dataset_of(wildcards)]),
        judgements=lambda wildcards: judgements(wildcards.tag, [dataset_of(wildcards)]),
        threshold="<results>/thresholds/{tag}.yaml",
    output:
        "{meta}/advantages_{tag}.parquet",
    log:
        "<logs>/compute_advantages/{tag}@{meta}.log",
    wildcard_constraints:
        tag=one_of(EXPERIMENT.judged_labels),
    conda:
        "../../envs/environment.yaml"
    params:
        config=lambda wildcards: labels_slice(wildcards.tag, [dataset_of(wildcards)]),
        dataset=dataset_of,
        code=code_of("compute_advantages"),
        critic=lambda wildcards, input: os.path.dirname(input.critic),
    message:
        "Compute the advantages {wildcards.tag} of {params.dataset} and label its frames"
    shell:
        "python {input.script} --config {params.config:q} --dataset {params.dataset} --tag {wildcards.tag} --critic-dir {params.critic}"
        " --episodes {input.episodes} --threshold {input.threshold} --output {output:q} > {log:q} 2>&1"


rule import_advantages:
    input:
        imported_file("advantages"),
        script="workflow/scripts/import_sidecar.py",
        episodes=lambda wildcards: episodes_files([dataset_of(wildcards)]),
    output:
        "{meta}/advantages_{tag}.parquet",
    log:
        "<logs>/import_advantages/{tag}@{meta}.log",
    wildcard_constraints:
        tag=one_of(IMPORTED["advantages"]),
    conda:
        "../../envs/environment.yaml"
    params:
        config=imported_slice("advantages"),
        dataset=dataset_of,
        code=code_of("import_sidecar"),
        listing=imported_listing("advantages"),
    message:
        "Import the labels {wildcards.tag} of {params.dataset}, which carry no lineage"
    shell:
        "python {input.script} --config {params.config:q} --kind advantages --dataset {params.dataset} --tag {wildcards.tag}"
        " --episodes {input.episodes:q} --output {output:q} > {log:q} 2>&1"


rule advantages:
    input:
        [sidecar_files("advantages", tag, config.datasets) for tag, config in EXPERIMENT.advantages.items()],
    message:
        "Advantages and labels of every tag"
