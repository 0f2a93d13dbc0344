"""Jobs that run on devices: how many of each, what that asks of a cluster, and how they start."""

from recap_steam.accelerators import resources as cluster_resources


def devices_of(section, wildcards):
    """Devices and nodes that the entry of a job's tag asks for; without a section, one."""
    entry = RAW[section][wildcards.tag] if section else {}
    return {key: entry.get(key, 1) for key in ("devices", "nodes")}


def device_threads(section=None):
    """Threads of a rule whose jobs run on devices."""
    return lambda wildcards: EXPERIMENT.cpus_per_device * devices_of(section, wildcards)["devices"]


def device_resources(section=None):
    """Resources of a rule whose jobs run on devices. A resource that a job has no use for is None, which Snakemake takes for absent."""
    return {
        name: lambda wildcards, name=name: asked(**devices_of(section, wildcards)).get(name)
        for name in asked(devices=1, nodes=2)  # which has all of them
    }


def asked(devices, nodes):
    """What a job asks for: of Snakemake its devices; on a cluster, of Slurm nodes, accelerators, memory and partition, too."""
    counts = {"devices": devices, "nodes": nodes}
    if EXPERIMENT.accelerator is None:
        return counts
    partition = EXPERIMENT.accelerator_partition
    return {
        **counts,
        **cluster_resources(EXPERIMENT.accelerator, EXPERIMENT.accelerator_model, devices, nodes),
        "mem_mb": EXPERIMENT.mem_mb_per_device * devices,
        **({"slurm_partition": partition} if partition else {}),
    }


def launch():
    """Shell prefix that starts a script on the job's devices. The launcher takes bash's place: signals that end a job would end bash first."""
    return "exec python -m recap_steam.launch --nodes {resources.nodes} --devices {resources.devices} --threads {threads}"


onstart:
    if workflow.non_local_exec and EXPERIMENT.accelerator is None:
        sys.exit(
            "error: config: accelerator: a cluster has to be told what its nodes have, as profiles/slurm does under `config`; --config on the "
            "command line replaces all of that, so change keys in a file (--configfile), or give accelerator=NAME there, too"
        )
