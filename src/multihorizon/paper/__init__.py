"""The paper's study, theory and baselines, and what goes beyond it, on top of public names: `multihorizon reproduce`."""
