"""What is asked of a solution: do they share a discount or a goal, does the model fit, what could a study show."""
