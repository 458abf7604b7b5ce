"""``pyoco-client run``: one run in this process, shown in the terminal."""
