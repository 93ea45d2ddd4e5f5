"""``unstuck demo``: jobs of several kinds on real worker processes, of which one is killed and one is frozen."""
