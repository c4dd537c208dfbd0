"""Several processes, one model: torch's tensor parallel and FSDP2, and what the ranks tell each other."""
