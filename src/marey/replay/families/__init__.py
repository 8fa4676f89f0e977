"""How a run is parallel, and what a change does to it: data, sharded, pipeline, servers."""
