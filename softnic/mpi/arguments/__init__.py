"""What calls take as arguments, and every check of it; code behind them takes valid arguments for granted.

Reading order: exported_memory and raw_memory find the memory of objects; spec_parts and buffers, what a message is made
of; blocks, a buffer that has a block for each rank; checks, ranks, tags, counts and operations; message_target, which
messages fit a receive; collective_args and block_args, the arguments of collectives.
"""
