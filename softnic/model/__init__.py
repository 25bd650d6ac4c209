"""What training on many nodes costs: formulas of two papers, and a cluster in virtual time that they are held against.

Read in this order: layers.py (what is trained), costs.py (INCEPTIONN's alpha-beta-gamma costs), smartnic.py (the
smart NIC's iteration), frames.py (what frames and links add to both), parameters.py (a machine's figures), predict.py
(iteration times from them); then switch.py, processes.py, cluster.py and programs.py (the same in virtual time, with
every byte through the whole stack), and check.py, which compares the two.

The papers use some letters twice. alpha, beta, gamma are latency, seconds a byte and seconds a byte summed in costs.py;
alpha and beta are a share of a bandwidth and a compression ratio in smartnic.py. Each file keeps to its paper.
"""
