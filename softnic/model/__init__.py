"""What training on many nodes costs: the formulas of two papers, checked against a cluster in virtual time.

Reading order: layers.py (what is trained), costs.py (INCEPTIONN's alpha-beta-gamma costs), smartnic.py (the smart NIC's
iteration), frames.py (the effect of frames and links on both), parameters.py (the figures of a machine), predict.py
(iteration times); then programs.py (iterations on a cluster of softnic/sim) and check.py, which compares the two.

The papers use some letters twice. In costs.py, alpha, beta and gamma are latency, seconds a byte and seconds a byte
summed; in smartnic.py, alpha and beta are a fraction of a bandwidth and a compression ratio. Each file keeps to its
paper.
"""
