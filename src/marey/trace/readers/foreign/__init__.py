"""Files of other tools: Nsight Systems exports, and those refused with the export that works."""
