"""Progress critics (method steam): members, the ensemble that they form, and its scores of every frame.

Reads    <results>/episodes/, <results>/frames/
Writes   <results>/critics/{tag}/members/{member}/    weights, configuration, lineage, metrics, held-out evaluation
         <results>/critics/{tag}/                     the members' weights in one file, and where each came from
         {meta}/scores_{tag}.parquet                  {tag} is the critic's
State    state/<experiment>/critics/, state/<experiment>/scores/    resumable, undeclared
"""


rule train_member:
    input:
        script="workflow/scripts/train_member.py",
        episodes=lambda wildcards: episodes_files(critic_datasets(wildcards)),
        frames=lambda wildcards: frames_files(
            critic_datasets(wildcards),
            EXPERIMENT.critics[wildcards.tag].model.image_size,
        ),
    output:
        in_folder("<results>/critics/{tag}/members/{member}", MEMBER_FILES),
    log:
        "<logs>/train_member/{tag}/{member}.log",
    benchmark:
        "<logs>/train_member/{tag}/{member}.tsv"
    wildcard_constraints:
        tag=one_of(STEAM_CRITICS),
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
        code=code_of("train_member"),
        episodes=lambda wildcards, input: os.path.dirname(input.episodes[0]),
        frames=lambda wildcards, input: os.path.dirname(input.frames[0]),
        state=lambda wildcards: f"{STATE}/critics/{wildcards.tag}/members/{wildcards.member}",
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Train member {wildcards.member} of the critic {wildcards.tag}"
    shell:
        launch() + " {input.script} --config {params.config:q} --execution {resources.execution:q} --tag {wildcards.tag}"
        " --member {wildcards.member} --episodes-dir {params.episodes} --frames-dir {params.frames} --state-dir {params.state}"
        " --output-dir {params.folder} > {log} 2>&1"


rule merge_ensemble:
    input:
        trained_members,
        script="workflow/scripts/merge_ensemble.py",
    output:
        in_folder("<results>/critics/{tag}", ENSEMBLE_FILES),
    log:
        "<logs>/merge_ensemble/{tag}.log",
    wildcard_constraints:
        tag=one_of(STEAM_CRITICS),
    conda:
        "../../envs/environment.yaml"
    params:
        members=members_of,
        files=members_listing,
        code=code_of("merge_ensemble"),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Merge the members of the critic {wildcards.tag}"
    shell:
        "python {input.script} {params.members:q} --output {params.folder} --overwrite > {log} 2>&1"


rule compute_scores:
    input:
        script="workflow/scripts/compute_scores.py",
        critic="<results>/critics/{tag}/model.safetensors",
        episodes=lambda wildcards: episodes_files([dataset_of(wildcards)]),
        frames=lambda wildcards: frames_files([dataset_of(wildcards)], EXPERIMENT.critics[wildcards.tag].model.image_size),
    output:
        "{meta}/scores_{tag}.parquet",
    log:
        "<logs>/compute_scores/{tag}@{meta}.log",
    benchmark:
        "<logs>/compute_scores/{tag}@{meta}.tsv"
    wildcard_constraints:
        tag=one_of(STEAM_CRITICS),
    conda:
        "../../envs/environment.yaml"
    threads: device_threads("critics")
    resources:
        **device_resources("critics"),
        runtime=480,
    params:
        config=scores_slice,
        dataset=dataset_of,
        code=code_of("compute_scores"),
        critic=lambda wildcards, input: os.path.dirname(input.critic),
        state=lambda wildcards: f"{STATE}/scores/{wildcards.tag}/{dataset_of(wildcards)}",
    message:
        "Score every frame of {params.dataset} with the critic {wildcards.tag}"
    shell:
        launch() + " {input.script} --config {params.config:q} --dataset {params.dataset} --tag {wildcards.tag}"
        " --critic-dir {params.critic} --episodes {input.episodes} --frames {input.frames} --state-dir {params.state}"
        " --output {output:q} > {log:q} 2>&1"


rule scores:
    input:
        [sidecar_files("scores", tag, value_datasets(EXPERIMENT, tag)) for tag in STEAM_CRITICS],
    message:
        "Scores of every dataset that a progress critic learned from, is judged on or labels"
