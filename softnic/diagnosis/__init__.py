"""Why a step is slow or stuck, from what the NICs of a run answer (softnic/ipc/collectives_info.py).

Reading order: samples (what was seen), waiting (who waits for whom in one sample), result, nic_load, failures
(communicators that have ended), findings (the result of all samples), sample_files (those of other hosts); reader asks
the NICs, and explanation does so for an error. All but these two are pure.
"""
