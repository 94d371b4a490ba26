"""Mathematics without a word about experts: linear programs, Newton's method, spectra, profiles."""
