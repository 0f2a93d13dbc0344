import subprocess
import sys


def test_label_stages_import_neither_torch_nor_lerobot_nor_pandas():
    """A label job takes about a second; one such import would double it."""
    code = (
        "import sys; import recap_steam.labels.stages, recap_steam.labels.returns, recap_steam.labels.mixture, recap_steam.labels.publish\n"
        "import recap_steam.labels.relabel, recap_steam.labels.imports\n"
        "print(sorted({'torch', 'lerobot', 'transformers', 'pandas', 'duckdb', 'scipy'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.stdout == "[]\n", finished.stderr
