"""python -m shapetrace"""

from shapetrace.cli import main

main(prog_name="shapetrace")
