"""The paper's study, and what goes beyond it, on top of the public API only: `multihorizon reproduce`."""
