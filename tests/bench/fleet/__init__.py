"""A fleet of GPUs with online and offline tasks, in simulated time: `make bench NAME=fleet
DATA=../shared/data/traces` writes build/bench/fleet.json and pictures.

DATA: the folder of the traces that docs/matching.md names. Four systems run the same tasks:
`exclusive`, each task has GPUs for itself; `time_sharing`, tasks have what part of a GPU they ask
for, by best fit (leased/placement); `ours`, an offline task beside each online one, matched by the
predictor (leased/matching), and kept from slowing it; `without_predictor`, the same by best fit.

What is real: the nodes and their GPUs; how many GPUs, and which part of one, each task asks for;
its class; how long an offline task takes, and at what time of the day it comes (gpu-v2023); how
busy the GPU of an online task is, and how much of its memory it has, minute by minute over a day
(v2026-GenAI). What is not is said in the text of the file where it is assumed: tasks.py, speeds.py,
systems.py and run.py.
"""
