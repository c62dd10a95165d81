"""`framekiln bench`, and its options by what is measured."""
