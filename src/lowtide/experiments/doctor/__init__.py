"""`lowtide doctor`: what is here, and does everything that training stands on work on it?"""
