"""What an ensemble of call graphs shows: box plots, differences, similarity, supernodes."""
