"""The objects a run stores: where they come from, what they are expected to do, and how they are pinned."""
