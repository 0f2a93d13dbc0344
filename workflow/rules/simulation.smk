"""Simulation: datasets that the workflow collects itself, and paired evaluations of policies.

Reads    <results>/policies/{policy}/
Writes   {root}/meta/info.json                                  stands for a whole collected dataset, renamed into place at once
         <results>/evaluations/{tag}/{policy}_{arm}.parquet     arm: plain, or w and the guidance scale
"""


rule collect_dataset:
    input:
        lambda wildcards: policy_weights(collecting_policy(wildcards)),
        script="workflow/scripts/collect_dataset.py",
    output:
        "{root}/meta/info.json",
    log:
        "<logs>/collect_dataset/dataset@{root}.log",
    benchmark:
        "<logs>/collect_dataset/dataset@{root}.tsv"
    priority: 1  # everything waits for rollouts; an evaluation can wait
    conda:
        "../../envs/environment.yaml"
    threads: device_threads()
    resources:
        **device_resources(),
        runtime=480,
    params:
        config=collect_slice,
        dataset=lambda wildcards: DATASET_OF_ROOT[wildcards.root],
        policy=lambda wildcards: policy_folder(collecting_policy(wildcards)),
        code=code_of("collect_dataset"),
    message:
        "Collect the dataset {params.dataset} in simulation"
    shell:
        launch()
        + " {input.script} --config {params.config:q} --dataset {params.dataset} {params.policy:q} --output {output:q} > {log:q} 2>&1"


rule evaluate_policy:
    input:
        lambda wildcards: policy_weights(wildcards.policy),
        first_arm,
        script="workflow/scripts/evaluate_policy.py",
    output:
        "<results>/evaluations/{tag}/{policy}_{arm}.parquet",
    log:
        "<logs>/evaluate_policy/{tag}/{policy}_{arm}.log",
    benchmark:
        "<logs>/evaluate_policy/{tag}/{policy}_{arm}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: device_threads("evaluations")
    resources:
        **device_resources("evaluations"),
        runtime=480,
    params:
        config=arm_slice,
        guidance=guidance,
        reference=lambda wildcards: [argument for file in first_arm(wildcards) for argument in ("--reference", file)],
        code=code_of("evaluate_policy"),
        policy=lambda wildcards: policy_folder(wildcards.policy),
    message:
        "Evaluate the policy {wildcards.policy} ({wildcards.arm}) in {wildcards.tag}"
    shell:
        launch() + " {input.script} --config {params.config:q} --evaluation {wildcards.tag} --policy {wildcards.policy}"
        " {params.policy:q} {params.guidance:q} {params.reference:q} --output {output} > {log} 2>&1"


rule evaluations:
    input:
        [arm_files(tag) for tag in EXPERIMENT.evaluations],
    message:
        "Every arm of every evaluation"
