"""The phases behind `dual`, and proofs that no positive semidefinite matrix fits."""
