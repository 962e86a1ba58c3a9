"""What an evolved variant owes to each of its edits: measured, said in words, shown in the step."""
