"""Value critics (method recap): training, and one value for every frame.

Reads    <results>/episodes/, <results>/frames/, {meta}/returns_{tag}.parquet
Writes   <results>/critics/{tag}/               weights, configuration, return scale, lineage, metrics, held-out evaluation
         {meta}/values_{tag}.parquet            {tag} is the critic's
State    state/<experiment>/critics/, state/<experiment>/values/    resumable, undeclared
"""


rule train_critic:
    input:
        script="workflow/scripts/train_critic.py",
        episodes=lambda wildcards: episodes_files(critic_datasets(wildcards)),
        frames=lambda wildcards: frames_files(
            critic_datasets(wildcards),
            EXPERIMENT.critics[wildcards.tag].model.image_size,
        ),
        returns=lambda wildcards: sidecar_files(
            "returns",
            EXPERIMENT.critics[wildcards.tag].returns_tag,
            critic_datasets(wildcards),
        ),
    output:
        in_folder("<results>/critics/{tag}", CRITIC_FILES),
    log:
        "<logs>/train_critic/{tag}.log",
    benchmark:
        "<logs>/train_critic/{tag}.tsv"
    wildcard_constraints:
        tag=one_of(VALUE_CRITICS),
    conda:
        "../../envs/environment.yaml"
    threads: device_threads("critics")
    resources:
        **device_resources("critics"),
        runtime=1440,
        execution=execution_slice("critics"),
    params:
        config=training_slice,
        weights=lambda wildcards: weights_listing(EXPERIMENT.critics[wildcards.tag].model),
        code=code_of("train_critic"),
        episodes=lambda wildcards, input: os.path.dirname(input.episodes[0]),
        frames=lambda wildcards, input: os.path.dirname(input.frames[0]),
        state=lambda wildcards: f"{STATE}/critics/{wildcards.tag}",
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Train the critic {wildcards.tag}"
    shell:
        launch() + " {input.script} --config {params.config:q} --execution {resources.execution:q} --tag {wildcards.tag}"
        " --episodes-dir {params.episodes} --frames-dir {params.frames} --state-dir {params.state} --output-dir {params.folder} > {log} 2>&1"


rule compute_values:
    input:
        script="workflow/scripts/compute_values.py",
        critic="<results>/critics/{tag}/model.safetensors",
        episodes=lambda wildcards: episodes_files([dataset_of(wildcards)]),
        frames=lambda wildcards: frames_files([dataset_of(wildcards)], EXPERIMENT.critics[wildcards.tag].model.image_size),
    output:
        "{meta}/values_{tag}.parquet",
    log:
        "<logs>/compute_values/{tag}@{meta}.log",
    benchmark:
        "<logs>/compute_values/{tag}@{meta}.tsv"
    wildcard_constraints:
        tag=one_of(VALUE_CRITICS),
    conda:
        "../../envs/environment.yaml"
    threads: device_threads("critics")
    resources:
        **device_resources("critics"),
        runtime=480,
    params:
        config=values_slice,
        dataset=dataset_of,
        code=code_of("compute_values"),
        critic=lambda wildcards, input: os.path.dirname(input.critic),
        state=lambda wildcards: f"{STATE}/values/{wildcards.tag}/{dataset_of(wildcards)}",
    message:
        "Value every frame of {params.dataset} with the critic {wildcards.tag}"
    shell:
        launch() + " {input.script} --config {params.config:q} --dataset {params.dataset} --tag {wildcards.tag}"
        " --critic-dir {params.critic} --episodes {input.episodes} --frames {input.frames} --state-dir {params.state}"
        " --output {output:q} > {log:q} 2>&1"


rule critics:
    input:
        [critic_files(tag) for tag in EXPERIMENT.critics],
    message:
        "Every critic, of both methods"


rule values:
    input:
        [sidecar_files("values", tag, value_datasets(EXPERIMENT, tag)) for tag in VALUE_CRITICS],
    message:
        "Values of every dataset that a value critic learned from, is judged on or labels"
