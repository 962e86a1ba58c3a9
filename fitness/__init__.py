"""All that runs and measures: worker isolation, the CPU runner, time, energy, quality, and the program folder."""
