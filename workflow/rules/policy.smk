"""Policies: normalisation and training.

Reads    <results>/episodes/, <results>/frames/, {meta}/advantages_{tag}.parquet
Writes   <results>/norm_stats/{policy}.json     quantiles, mean and standard deviation of states and actions
         <results>/policies/{tag}/              weights, configuration, processors, serving contract, lineage, metrics
State    state/<experiment>/policies/           resumable, undeclared
"""


rule compute_norm_stats:
    input:
        script="workflow/scripts/compute_norm_stats.py",
        episodes=lambda wildcards: episodes_files(EXPERIMENT.policies[wildcards.policy].datasets),
    output:
        "<results>/norm_stats/{policy}.json",
    log:
        "<logs>/compute_norm_stats/{policy}.log",
    conda:
        "../../envs/environment.yaml"
    params:
        config=norm_stats_slice,
        code=code_of("compute_norm_stats"),
        episodes=lambda wildcards, input: os.path.dirname(input.episodes[0]),
    message:
        "Measure the states and actions that the policy {wildcards.policy} learns from"
    shell:
        "python {input.script} --config {params.config:q} --tag {wildcards.policy} --episodes-dir {params.episodes}"
        " --output {output} > {log} 2>&1"


rule train_policy:
    input:
        policy_labels,
        init_weights,
        script="workflow/scripts/train_policy.py",
        episodes=lambda wildcards: episodes_files(policy_datasets(wildcards)),
        frames=lambda wildcards: frames_files(
            policy_datasets(wildcards),
            EXPERIMENT.policies[wildcards.tag].model.image_size,
        ),
        norm_stats="<results>/norm_stats/{tag}.json",
    output:
        in_folder("<results>/policies/{tag}", POLICY_FILES),
    log:
        "<logs>/train_policy/{tag}.log",
    benchmark:
        "<logs>/train_policy/{tag}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: device_threads("policies")
    resources:
        **device_resources("policies"),
        runtime=2880,
        execution=execution_slice("policies"),
    params:
        config=policy_slice,
        weights=lambda wildcards: weights_listing(EXPERIMENT.policies[wildcards.tag].model),
        init=init_folder,
        code=code_of("train_policy"),
        episodes=lambda wildcards, input: os.path.dirname(input.episodes[0]),
        frames=lambda wildcards, input: os.path.dirname(input.frames[0]),
        state=lambda wildcards: f"{STATE}/policies/{wildcards.tag}",
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Train the policy {wildcards.tag}"
    shell:
        launch() + " {input.script} --config {params.config:q} --execution {resources.execution:q} --tag {wildcards.tag}"
        " --episodes-dir {params.episodes} --frames-dir {params.frames} --norm-stats {input.norm_stats} {params.init:q} --state-dir {params.state}"
        " --output-dir {params.folder} > {log} 2>&1"


rule policies:
    input:
        [policy_files(tag) for tag in EXPERIMENT.policies],
    message:
        "Every policy"
