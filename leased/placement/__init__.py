"""Which GPU a job gets: pure. What is on the GPUs and what the job asks for go in, an answer
comes out."""
