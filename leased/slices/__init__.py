"""How the jobs that are on a GPU together divide it by the GPU's own time slices."""
