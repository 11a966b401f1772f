"""What the ops of a graph call beyond aten, and what is known about aten: lowtide's own ops, replay, effects."""
