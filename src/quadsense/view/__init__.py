"""Results for people: sentences (`words`), tables and reports for the terminal (`text`)."""
