"""lowtide inside of frameworks: each module needs its framework, and is imported only by who asks for it."""
