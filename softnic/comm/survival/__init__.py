"""What the ranks of a communicator agree on after some of them are lost: MPI's Agree and Shrink."""
